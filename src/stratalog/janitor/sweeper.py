"""The sweeper: deletes blocks and split files without a row, which are called orphans.

Only objects whose writer was announced are taken (`announced.py`); the others are counted.

The commit of an orphan never happened: a broker, a writer on Spark or a run of the pipeline died,
or gave the commit up. A writer on Spark may need hours from its first upload to its commit. It
holds a lease all the while, and objects created since the oldest live lease began are left alone.
The sweep has these steps, and a crash after each of them leaves:

1. Renew the claim on the store. It stops the sweep if the store is another cluster's, or if the
   control plane was restored from a backup and does not know the newer objects. A crash leaves a
   higher generation, which means nothing.
2. List the blocks in key order and go through the control plane's rows beside them, in id order;
   then the split files likewise. An object without a row that is old, by the time in its id and by
   the store's time, is a candidate. Leases are looked up once, before the listing: a writer that
   takes its lease later uploads later, too, and its objects are young.
3. Bar the candidates. In one transaction the control plane leaves out candidates that were
   committed meanwhile and puts tombstones under the others, so that a commit that is still on its
   way fails instead of pointing at nothing. A crash leaves barred objects. The next sweep finds
   them again, hears again that they are barred, and goes on.
4. Check the claim once more, because step 2 may have taken long, and delete the barred objects. A
   crash leaves the rest of them, as after step 3.

A put that arrives even later makes a barred object, which a later complete sweep deletes.
"""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.block.keys import (
    BLOCKS_PREFIX,
    SPLITS_PREFIX,
    block_key,
    parse_block_key,
    parse_split_key,
    split_key,
)
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, uuid7, uuid7_time_ms
from stratalog.janitor.announced import CLOCK_MARGIN_MS, announced_ids
from stratalog.objects.store import ObjectInfo, ObjectStore
from stratalog.opening.claim import check_claim, renew_claim

log = logging.getLogger(__name__)

_PAGE = 1000
"""Rows read, and objects barred and deleted, at once. S3 deletes a thousand in one request."""
_COMPLETE_EVERY = 60
"""Every 60th sweep lists all objects, the others only objects that grew old since the last sweep.
Listing costs money: a million blocks are a thousand requests."""
LEASE_MARGIN_MS = CLOCK_MARGIN_MS
"""Objects created this long before the oldest lease may still belong to its holder. A lease begins
by the database's clock, an object by the clocks of its writer and the store, and they need not
agree. The price is that orphans of these minutes stay until the lease ends."""


class _Kind(NamedTuple):
    """A kind of objects that a sweep goes through: blocks or split files."""

    prefix: str
    key_of: Callable[[ObjectId], str]
    parse: Callable[[str], ObjectId | None]


_KINDS = (
    _Kind(BLOCKS_PREFIX, block_key, parse_block_key),
    _Kind(SPLITS_PREFIX, split_key, parse_split_key),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    examined: int
    deleted: int
    foreign: int
    """Objects below the prefix whose keys are none of ours, or whose writer was never announced.
    They are left alone."""


class Sweeper:
    def __init__(
        self, control: ControlPlane, store: ObjectStore, *, clock: Clock, orphan_age_ms: int
    ) -> None:
        self._control = control
        self._store = store
        self._clock = clock
        self.orphan_age_ms = orphan_age_ms
        self._sweeps = 0
        self._swept_until_ms = 0

    async def sweep(self) -> Swept:
        """Delete the orphans that grew old since the last sweep; every so often, all orphans."""
        await renew_claim(self._control, self._store)
        horizon_ms = await self._horizon_ms()
        complete = self._sweeps % _COMPLETE_EVERY == 0
        # An object whose upload was slow is younger for the store than its id says, so that the
        # next sweep begins one orphan age before the point that this one reaches.
        start_ms = 0 if complete else max(0, self._swept_until_ms - self.orphan_age_ms)
        swept = await _Sweep(self._control, self._store, start_ms, horizon_ms).run()
        self._sweeps += 1
        self._swept_until_ms = horizon_ms
        if swept.deleted:
            log.info("Deleted %d objects that were never committed.", swept.deleted)
        return swept

    async def _horizon_ms(self) -> int:
        """Return the time after which objects are too young to be orphans."""
        # The clock is read before the leases. Otherwise, with an orphan age of 0, objects of a
        # lease that begins between the two would be spared neither by the lease nor by their age.
        old_ms = self._clock.now_ms() - self.orphan_age_ms
        lease_ms = await self._control.scans.oldest_lease_ms()
        return old_ms if lease_ms is None else min(old_ms, lease_ms - LEASE_MARGIN_MS - 1)


class _Sweep:
    """One pass over the store from `start_ms` to `horizon_ms`, by the time in the ids."""

    def __init__(
        self, control: ControlPlane, store: ObjectStore, start_ms: int, horizon_ms: int
    ) -> None:
        self._control = control
        self._store = store
        self._start = ObjectId(uuid7(start_ms, lambda size: bytes(size))) if start_ms else None
        self._horizon_ms = horizon_ms
        self._candidates: dict[ObjectId, str] = {}
        self._deleted = 0
        self._unannounced = 0

    async def run(self) -> Swept:
        swept = [await self._sweep(kind) for kind in _KINDS]
        await self._take()
        return Swept(
            examined=sum(each.examined for each in swept),
            deleted=self._deleted,
            foreign=sum(each.foreign for each in swept) + self._unannounced,
        )

    async def _sweep(self, kind: _Kind) -> Swept:
        examined = foreign = 0
        rows = _RowIds(self._control, self._start)
        async for info in self._listing(kind):
            object_id = kind.parse(info.key)
            if object_id is None:
                foreign += 1
                continue
            if uuid7_time_ms(object_id) > self._horizon_ms:
                break
            examined += 1
            if info.modified_ms <= self._horizon_ms and not await rows.holds(object_id):
                await self._add(object_id, info.key)
        return Swept(examined=examined, deleted=0, foreign=foreign)

    def _listing(self, kind: _Kind) -> AsyncIterator[ObjectInfo]:
        after = kind.key_of(self._start) if self._start is not None else None
        return self._store.list(kind.prefix, start_after=after)

    async def _add(self, object_id: ObjectId, key: str) -> None:
        self._candidates[object_id] = key
        if len(self._candidates) == _PAGE:
            await self._take()

    async def _take(self) -> None:
        """Bar the candidates, then delete the ones that were barred."""
        if not self._candidates:
            return
        own = await announced_ids(self._control, self._candidates)
        self._unannounced += len(self._candidates) - len(own)
        barred = await self._control.objects.bar(
            {each: key for each, key in self._candidates.items() if each in own}
        )
        keys = [key for object_id, key in self._candidates.items() if object_id in barred]
        if keys:
            await check_claim(self._control, self._store)
            await self._store.delete(keys)
        self._deleted += len(keys)
        self._candidates.clear()


class _RowIds:
    """The ids of all rows, read a page at a time. They must be asked for in ascending order."""

    def __init__(self, control: ControlPlane, after: ObjectId | None) -> None:
        self._control = control
        self._after = after
        self._page: set[ObjectId] = set()
        self._exhausted = False

    async def holds(self, object_id: ObjectId) -> bool:
        while not self._exhausted and (self._after is None or self._after < object_id):
            page = await self._control.objects.all(after=self._after, limit=_PAGE)
            self._exhausted = len(page) < _PAGE
            self._page = {row.object_id for row in page}
            self._after = page[-1].object_id if page else self._after
        return object_id in self._page
