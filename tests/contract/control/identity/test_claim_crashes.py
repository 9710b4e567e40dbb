"""Programs that die at any step of a claim on a store, and steps that take effect later.

Steps are the writes to the control plane and the puts of the marker. One that takes effect late was
on its way when its program died, and arrives behind the claim of the next program.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from stratalog.clock import SystemClock
from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database, Work
from stratalog.ids import system_entropy
from stratalog.objects.errors import ObjectChangedError, ObjectExistsError
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import (
    check_claim,
    check_store,
    claim_anew,
    claim_segments,
    claim_store,
    renew_claim,
)
from stratalog.opening.marker import MARKER_KEY, read_marker

Claim = Callable[[ControlPlane, ObjectStore, ObjectStore], Awaitable[object]]


class CrashError(Exception):
    """The process died here."""


class Doomed:
    """The control plane and the stores as a program has them that dies at one of its steps."""

    def __init__(self, database: Database, dies_at: int, fate: str) -> None:
        self._database = database
        self._steps_left = dies_at
        self._fate = fate
        self.late: Callable[[], Awaitable[object]] | None = None
        self.control = ControlPlane(cast(Database, self), system_entropy)

    async def step(self, take: Callable[[], Awaitable[Any]]) -> Any:
        self._steps_left -= 1
        if self._steps_left:
            return await take()
        if self._fate == "done":
            await take()
        if self._fate == "late":
            self.late = take
        raise CrashError

    async def read(self, work: Work[Any]) -> Any:
        return await self._database.read(work)

    async def write(self, work: Work[Any]) -> Any:
        return await self.step(lambda: self._database.write(work))

    def store(self, target: ObjectStore) -> ObjectStore:
        return cast(ObjectStore, DoomedStore(target, self))


class DoomedStore:
    def __init__(self, target: ObjectStore, doomed: Doomed) -> None:
        self._target = target
        self._doomed = doomed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def put(self, *args: Any, **kwargs: Any) -> Any:
        return await self._doomed.step(lambda: self._target.put(*args, **kwargs))


async def _first(control: ControlPlane, blocks: ObjectStore, segments: ObjectStore) -> None:
    await claim_store(control, blocks)


async def _renewal(control: ControlPlane, blocks: ObjectStore, segments: ObjectStore) -> None:
    await renew_claim(control, blocks)


async def _segments(control: ControlPlane, blocks: ObjectStore, segments: ObjectStore) -> None:
    await claim_segments(control, blocks, segments)


async def _lost_marker(control: ControlPlane, blocks: ObjectStore, segments: ObjectStore) -> None:
    await claim_anew(control, blocks)


async def _restored(control: ControlPlane, blocks: ObjectStore, segments: ObjectStore) -> None:
    await claim_anew(control, blocks, restored=True)


async def _prepare(
    claim: Claim, plane: ControlPlane, database: Database, blocks: ObjectStore
) -> None:
    await database.write(
        lambda connection: connection.execute(
            "UPDATE cluster SET generation = 0, segments_apart = NULL, store_id = NULL,"
            " store_claims = NULL, segments_store_id = NULL, segments_store_claims = NULL"
        )
    )
    if claim is not _first:
        await claim_store(plane, blocks)
    if claim is _lost_marker:
        await blocks.delete([MARKER_KEY])
    if claim is _restored:
        await database.write(
            lambda connection: connection.execute(
                "UPDATE cluster SET store_id = NULL, store_claims = 'forgotten'"
            )
        )


async def _check_agreed(control: ControlPlane, store: ObjectStore, role: StoreRole) -> None:
    """The store and the control plane name each other."""
    await check_claim(control, store, role)
    found = await read_marker(store)
    assert found is not None
    cluster = await control.identity.cluster()
    assert found[0].store_id == cluster.id_of(role) is not None
    assert found[0].generation <= cluster.generation
    assert found[0].claim in cluster.claims_on(role)


async def _die(
    claim: Claim, plane: ControlPlane, database: Database, at: int, fate: str, folder: Path
) -> bool:
    """Let a program die at one step, and the next one claim. False if there is no such step."""
    blocks = open_store("memory:", clock=SystemClock())
    segments = open_store(f"file:{folder / str(at)}", clock=SystemClock())
    await _prepare(claim, plane, database, blocks)
    doomed = Doomed(database, at, fate)
    try:
        await claim(doomed.control, doomed.store(blocks), doomed.store(segments))
    except CrashError:
        if claim in (_first, _renewal, _segments):
            await check_store(plane, blocks)
            await claim_store(plane, blocks)
        await claim(plane, blocks, segments)
        if doomed.late is not None:
            with suppress(ObjectExistsError, ObjectChangedError):
                await doomed.late()
        died = True
    else:
        died = False
    places = {StoreRole.BLOCKS: blocks}
    if claim is _segments:
        places[StoreRole.SEGMENTS] = segments
    for role, store in places.items():
        await _check_agreed(plane, store, role)
        await renew_claim(plane, store, role)
        await _check_agreed(plane, store, role)
    await blocks.close()
    await segments.close()
    return died


@pytest.mark.parametrize("fate", ["not done", "done", "late"])
@pytest.mark.parametrize(
    ("claim", "steps"),
    [(_first, 4), (_renewal, 2), (_segments, 5), (_lost_marker, 5), (_restored, 3)],
)
async def test_a_program_may_die_at_any_step_of_a_claim(
    plane: ControlPlane, database: Database, claim: Claim, steps: int, fate: str, tmp_path: Path
) -> None:
    for at in range(1, steps + 1):
        assert await _die(claim, plane, database, at, fate, tmp_path)
    assert not await _die(claim, plane, database, steps + 1, fate, tmp_path), "no step is left out"
