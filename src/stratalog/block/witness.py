"""Witnesses: small objects that name the commits which no footer names yet.

The footer of a block counts the commits before it. The last ones of a burst are in none. If the
control plane forgot just these, a broker that starts could not notice. So a writer that has a
commit which is in no footer within `block.witness_ms` puts its number of commits into the object
`witness/<tag>`. Each writer has one, and overwrites it.

It is written in the background: no producer waits for it, and a store that fails costs no more
than the evidence. A crash between a commit and its witness leaves a commit of which only the writer
knew.
"""

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.clock import Clock
from stratalog.errors import MALFORMED_JSON, StratalogError
from stratalog.ids import WriterTag
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.expiry import delete_older
from stratalog.objects.store import ObjectStore
from stratalog.settings import DAY_MS

log = logging.getLogger(__name__)

WITNESS_PREFIX = "witness/"
WITNESS_AGE_MS = 29 * DAY_MS
"""Older witnesses are no evidence, and are deleted. The control plane forgets ended writers a day
later: clocks may differ by that much."""
_FORMAT = 1
_PUT_S = 10.0
"""The longest time for one put. A store that hangs does not hold up the end of the broker."""
_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    tag: WriterTag
    commits: int
    committed_ms: int
    """The time of the last of these commits, by the writer's clock."""


class CommitWitness:
    """Keeps the witness of one writer. `committed` is called after each of its commits."""

    def __init__(
        self, announced: AnnouncedWriter, store: ObjectStore, *, interval_ms: int, clock: Clock
    ) -> None:
        self._announced = announced
        self._store = store
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._witnessed = 0
        self._last_ms = 0
        # Commits that may be in no footer, each with the time by which a witness must name it.
        self._due: deque[tuple[int, float]] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._putting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="commit-witness")

    def committed(self) -> None:
        self._last_ms = self._clock.now_ms()
        self._due.append((self._announced.commits, self._clock.monotonic() + self._interval_s))
        self._drop_named()
        self._news.set()

    async def stop(self) -> None:
        """Tell the last commits, if the store answers."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        # Not cut off: an old put that arrived late would replace a newer one.
        if self._putting is not None:
            await self._putting
        self._drop_named()
        if self._due:
            await self._put()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._due:
                left_s = self._due[0][1] - self._clock.monotonic()
                if left_s > 0:
                    await self._clock.sleep(left_s)
                else:
                    await self._put_shielded()
                self._drop_named()

    async def _put_shielded(self) -> None:
        self._putting = asyncio.create_task(self._put())
        await asyncio.shield(self._putting)
        if self._due and self._due[0][0] > self._witnessed:
            await self._clock.sleep(self._interval_s)

    async def _put(self) -> None:
        commits = self._announced.commits
        witness = Witness(tag=self._announced.tag, commits=commits, committed_ms=self._last_ms)
        try:
            async with asyncio.timeout(_PUT_S):
                await self._store.put(witness_key(witness.tag), [encode_witness(witness)])
        except (StratalogError, TimeoutError) as error:
            log.warning("The witness of %d commits was not written: %r", commits, error)
        except Exception:
            log.exception("The witness of %d commits was not written", commits)
        else:
            self._witnessed = commits

    def _drop_named(self) -> None:
        named = max(self._announced.in_footers, self._witnessed)
        while self._due and self._due[0][0] <= named:
            self._due.popleft()


def witness_key(tag: WriterTag) -> str:
    return f"{WITNESS_PREFIX}{tag:010x}"


def encode_witness(witness: Witness) -> bytes:
    fields = {
        "tag": f"{witness.tag:010x}",
        "commits": witness.commits,
        "committed_ms": witness.committed_ms,
        "format": _FORMAT,
    }
    return json.dumps(fields).encode() + b"\n"


def parse_witness(key: str, data: bytes | bytearray | memoryview) -> Witness | None:
    """Read a witness. None if it is none, is damaged, or lies at the key of another writer."""
    try:
        fields = json.loads(bytes(data))
        witness = Witness(
            tag=WriterTag(int(fields["tag"], 16)),
            commits=int(fields["commits"]),
            committed_ms=int(fields["committed_ms"]),
        )
        understood = int(fields["format"]) <= _FORMAT
    except MALFORMED_JSON:
        return None
    return witness if understood and witness_key(witness.tag) == key else None


async def read_witnesses(store: ObjectStore, now_ms: int, since_ms: int) -> list[Witness]:
    """Return the witnesses of commits after `since_ms`, as far as they are not too old."""
    oldest_ms = now_ms - WITNESS_AGE_MS
    listed = [info.key async for info in store.list(WITNESS_PREFIX) if info.modified_ms > oldest_ms]
    found: list[Witness] = []
    for first in range(0, len(listed), _READS_AT_ONCE):
        keys = listed[first : first + _READS_AT_ONCE]
        witnesses = await asyncio.gather(*(_read(store, key) for key in keys))
        found += [each for each in witnesses if each is not None]
    return [each for each in found if each.committed_ms > max(oldest_ms, since_ms)]


async def delete_old_witnesses(store: ObjectStore, now_ms: int) -> int:
    """Delete the witnesses that are too old to be evidence."""
    return await delete_older(store, WITNESS_PREFIX, now_ms - WITNESS_AGE_MS)


async def _read(store: ObjectStore, key: str) -> Witness | None:
    try:
        found = await store.get(key)
    except ObjectNotFoundError:
        return None
    return parse_witness(key, found.data)
