"""Programs of the pipeline that get a signal while they work."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.unit.pipeline.hanging_program import WORKING
from tests.unit.pipeline.lab import Lab

from stratalog.pipeline.hosting.child_process import pack_settings
from stratalog.pipeline.hosting.signals import TERMINATED, run_until_terminated

PATIENCE_S = 60.0
SET_UP = ("--set", "tiering.age_ms=0", "--set", "tiering.min_segment_bytes=1")


def where(lab: Lab) -> list[str]:
    storage = lab.settings.storage
    given = (f"storage.objects={storage.objects}", f"storage.control={storage.control}")
    return [*SET_UP, *(part for each in given for part in ("--set", each))]


async def ended_at_work(
    arguments: Sequence[str], told: bytes, number: signal.Signals
) -> tuple[int, bytes]:
    """Return the exit code of a program that gets a signal as soon as it works, and its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.pipeline.hanging_program",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            process.stdin.write(told)
            await process.stderr.readuntil(WORKING)
            process.send_signal(number)
            # Its input is left open: the end of that would end some of them, too.
            said = await process.stderr.read()
            return await process.wait(), said
    finally:
        with suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize("which", ["cli", "submit", "worker"])
async def test_a_run_that_is_terminated_gives_its_claims_back_and_says_so(
    lab: Lab, which: str
) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    arguments = {"cli": ["cli", "pipeline", "run"], "submit": ["submit"], "worker": ["worker"]}
    options = where(lab) if which != "worker" else []
    told = pack_settings(lab.settings) + b"\nmerge split\n" if which == "worker" else b""
    code, said = await ended_at_work([*arguments[which], *options], told, signal.SIGTERM)
    assert (code, said) == (TERMINATED, b"")
    aged = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert [(each.claimed, each.attempts) for each in aged] == [(False, 0)] * 2
    [run] = await lab.control.pipeline.runs(limit=1)
    assert run.finished_ms is None
    assert (await lab.run()).segments == 2
    await lab.check(topic)


async def test_a_run_that_is_interrupted_gives_its_claims_back_too(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    code, _ = await ended_at_work(["cli", "pipeline", "run", *where(lab)], b"", signal.SIGINT)
    assert code == 130
    aged = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert [(each.claimed, each.attempts) for each in aged] == [(False, 0)] * 2


def test_what_is_terminated_closes_what_it_opened_and_a_second_signal_does_not_wait() -> None:
    closed: list[object] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append(signal.getsignal(signal.SIGTERM))

    with pytest.raises(SystemExit) as ended:
        run_until_terminated(work())
    assert ended.value.code == TERMINATED
    assert closed == [signal.SIG_DFL]


def test_what_ends_by_itself_ends_as_without_signals() -> None:
    async def work() -> int:
        return 7

    async def give_up() -> None:
        raise asyncio.CancelledError

    assert run_until_terminated(work()) == 7
    with pytest.raises(asyncio.CancelledError):
        run_until_terminated(give_up())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
