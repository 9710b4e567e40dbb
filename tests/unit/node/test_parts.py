"""Parts of a node: the order of starting and stopping, and failures on the way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest

from stratalog.errors import StratalogError
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase


class Diary:
    """Makes parts that write down when they start and stop."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def part(
        self,
        name: str,
        phase: Phase,
        *,
        start: Callable[[], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
        is_independent: bool = False,
    ) -> Part:
        async def begin() -> None:
            if start is not None:
                await start()
            self.lines.append(f"+{name}")

        async def end() -> None:
            self.lines.append(f"-{name}")
            if stop is not None:
                await stop()

        return Part(name=name, stops_in=phase, start=begin, stop=end, is_independent=is_independent)

    @property
    def stopped(self) -> list[str]:
        return [line[1:] for line in self.lines if line.startswith("-")]


async def fail() -> None:
    raise StratalogError("it is stuck")


class Hang:
    """An action that begins and never ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def start_all(parts: Parts, wanted: Sequence[Part]) -> None:
    async with parts.undone_on_failure():
        for part in wanted:
            await parts.start(part)


async def test_parts_start_in_order_and_stop_by_phase_and_the_latest_first() -> None:
    diary, parts = Diary(), Parts()
    for name, phase in [
        ("store", Phase.RELEASE),
        ("listener", Phase.DRAIN),
        ("membership", Phase.WITHDRAW),
        ("writer", Phase.CLOSE_WRITERS),
        ("groups", Phase.WITHDRAW),
        ("janitor", Phase.END_BACKGROUND),
        ("hints", Phase.RELEASE),
    ]:
        await parts.start(diary.part(name, phase))
    stopping = ["janitor", "groups", "membership", "listener", "writer", "hints", "store"]
    assert [part.name for part in parts.in_stopping_order()] == stopping
    await parts.stop()
    assert diary.lines == [
        *("+store", "+listener", "+membership", "+writer", "+groups", "+janitor", "+hints"),
        *(f"-{name}" for name in stopping),
    ]


async def test_a_part_may_start_and_stop_without_waiting() -> None:
    lines: list[str] = []
    parts = Parts()
    await parts.start(
        Part(
            name="flag",
            stops_in=Phase.DRAIN,
            start=lambda: lines.append("+"),
            stop=lambda: lines.append("-"),
        )
    )
    await parts.start(Part(name="made", stops_in=Phase.DRAIN, stop=lambda: lines.append("made")))
    await parts.stop()
    assert lines == ["+", "made", "-"]


async def test_a_second_stop_stops_nothing_again() -> None:
    diary, parts = Diary(), Parts()
    await parts.start(diary.part("store", Phase.RELEASE))
    await parts.stop()
    await parts.stop()
    assert diary.stopped == ["store"]


async def test_a_start_that_fails_undoes_the_parts_before_it_and_is_raised() -> None:
    diary, parts = Diary(), Parts()
    wanted = [
        diary.part("store", Phase.RELEASE),
        diary.part("listener", Phase.DRAIN),
        diary.part("writer", Phase.CLOSE_WRITERS, start=fail),
    ]
    with pytest.raises(StratalogError, match="it is stuck"):
        await start_all(parts, wanted)
    assert diary.lines == ["+store", "+listener", "-listener", "-store"]
    await parts.stop()
    assert diary.stopped == ["listener", "store"]


async def test_a_failing_start_is_raised_even_if_the_undoing_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def close() -> None:
        raise StratalogError("the store does not close")

    diary, parts = Diary(), Parts()
    wanted = [
        diary.part("the store", Phase.RELEASE, stop=close),
        diary.part("writer", Phase.CLOSE_WRITERS, start=fail),
    ]
    with pytest.raises(StratalogError, match="it is stuck"):
        await start_all(parts, wanted)
    assert "Stopping the store failed: the store does not close" in caplog.text


async def test_a_block_that_succeeds_undoes_nothing() -> None:
    diary, parts = Diary(), Parts()
    await start_all(parts, [diary.part("store", Phase.RELEASE)])
    assert diary.lines == ["+store"]


async def test_a_stop_during_the_start_undoes_the_parts_that_had_started() -> None:
    diary, parts, hang = Diary(), Parts(), Hang()
    wanted = [
        diary.part("store", Phase.RELEASE),
        diary.part("listener", Phase.DRAIN, start=hang),
        diary.part("writer", Phase.CLOSE_WRITERS),
    ]
    starting = asyncio.create_task(start_all(parts, wanted))
    await hang.begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert diary.lines == ["+store", "-store"]


async def test_a_part_that_fails_to_stop_is_logged_and_raised_after_the_others_have_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crash() -> None:
        raise ValueError("a bug")

    diary, parts = Diary(), Parts()
    await parts.start(diary.part("store", Phase.RELEASE))
    await parts.start(diary.part("writer", Phase.CLOSE_WRITERS, stop=crash))
    await parts.start(diary.part("groups", Phase.WITHDRAW, stop=fail))
    with pytest.raises(StratalogError, match="it is stuck"):
        await parts.stop()
    assert diary.stopped == ["groups", "writer", "store"]
    assert "Stopping groups failed: it is stuck" in caplog.text
    assert "Stopping writer failed: ValueError('a bug')" in caplog.text
    known, bug = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert known.exc_info is None
    assert bug.exc_info is not None


async def test_a_cancelled_stop_still_stops_the_other_parts() -> None:
    diary, parts, hang = Diary(), Parts(), Hang()
    await parts.start(diary.part("store", Phase.RELEASE))
    await parts.start(diary.part("writer", Phase.CLOSE_WRITERS, stop=hang))
    await parts.start(diary.part("groups", Phase.WITHDRAW, stop=fail))
    stopping = asyncio.create_task(parts.stop())
    await hang.begun.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert diary.stopped == ["groups", "writer", "store"]


async def test_no_phase_waits_for_an_independent_part_but_the_stop_does() -> None:
    diary, parts = Diary(), Parts()
    released = asyncio.Event()

    async def wait() -> None:
        await released.wait()
        diary.lines.append("-pipeline's process")

    async def release() -> None:
        released.set()

    await parts.start(diary.part("store", Phase.RELEASE, stop=release))
    await parts.start(diary.part("pipeline", Phase.END_BACKGROUND, stop=wait, is_independent=True))
    await parts.start(diary.part("groups", Phase.WITHDRAW, stop=lambda: asyncio.sleep(0)))
    await parts.stop()
    assert sorted(diary.stopped) == ["groups", "pipeline", "pipeline's process", "store"]
    assert diary.lines[-2:] == ["-store", "-pipeline's process"]


async def test_the_failure_of_an_independent_part_is_raised_too() -> None:
    diary, parts = Diary(), Parts()
    await parts.start(diary.part("store", Phase.RELEASE))
    await parts.start(diary.part("pipeline", Phase.END_BACKGROUND, stop=fail, is_independent=True))
    with pytest.raises(StratalogError, match="it is stuck"):
        await parts.stop()
    assert sorted(diary.stopped) == ["pipeline", "store"]
