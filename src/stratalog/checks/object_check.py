"""The check of objects: rows' references, the control plane's objects and the store's listings of
blocks and split files are compared, all sorted by object id.

Brokers may run during the check, so every problem is checked a second time before it is reported.
An object is marked before it is deleted, and deleted before its row is. So the second look asks the
store first and the control plane second.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from stratalog.block.keys import (
    BLOCKS_PREFIX,
    SPLITS_PREFIX,
    block_key,
    parse_block_key,
    parse_split_key,
)
from stratalog.checks.object_references import ObjectReference, ObjectReferences
from stratalog.checks.partition_check import find_row
from stratalog.checks.promises import object_is_accounted_for, object_is_whole, row_is_backed
from stratalog.checks.report import Problem, Progress
from stratalog.checks.sorted_streams import SortedStream, lowest_id
from stratalog.control.objects.model import StoredObjectRow
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, uuid7_time_ms
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectInfo, ObjectStore

_PAGE_ROWS = 1000


class ObjectCheck:
    def __init__(
        self,
        control: ControlPlane,
        store: ObjectStore,
        references: ObjectReferences,
        counts: Counter[str],
        progress: Progress,
        *,
        old_since_ms: int,
    ) -> None:
        self._control = control
        self._store = store
        self._references = references
        self._counts = counts
        self._progress = progress
        self._old_since_ms = old_since_ms

    async def run(self, found: Callable[[str, list[Problem]], None]) -> None:
        """Hand each object's key and problems to `found`."""
        references = SortedStream(self._references.sorted())
        rows = SortedStream(self._rows())
        blocks = SortedStream(self._listing(BLOCKS_PREFIX, parse_block_key))
        splits = SortedStream(self._listing(SPLITS_PREFIX, parse_split_key))
        while (object_id := await lowest_id(references, rows, blocks, splits)) is not None:
            reference = await references.take(object_id)
            row = await rows.take(object_id)
            info = await blocks.take(object_id) or await splits.take(object_id)
            if info is None and row is not None and not _is_listed(row.key):
                info = await self._head(row.key)
            if row is not None and row.marked_ms is None and reference is None:
                self._counts["objects_without_references"] += 1
            if self._judge(object_id, reference, row, info):
                key = row.key if row is not None else _key_of(object_id, info)
                found(key, await self._look_again(object_id, key, reference))

    async def _look_again(
        self, object_id: ObjectId, key: str, reference: ObjectReference | None
    ) -> list[Problem]:
        info = await self._head(key)
        if reference is not None:
            row = await find_row(self._control, reference.partition, reference.base_offset)
            reference = reference if row is not None and row.object_id == object_id else None
        return self._judge(object_id, reference, await self._row(object_id), info)

    def _judge(
        self,
        object_id: ObjectId,
        reference: ObjectReference | None,
        row: StoredObjectRow | None,
        info: ObjectInfo | None,
    ) -> list[Problem]:
        if reference is not None:
            problems = row_is_backed(reference.byte_end, row, info)
            if problems:
                return problems
        if row is not None:
            return object_is_whole(row, info)
        if info is None:
            return []
        return object_is_accounted_for(
            info, row, created_ms=uuid7_time_ms(object_id), old_since_ms=self._old_since_ms
        )

    async def _rows(self) -> AsyncIterator[tuple[ObjectId, StoredObjectRow]]:
        after = None
        while page := await self._control.objects.all(after=after, limit=_PAGE_ROWS):
            self._counts["objects"] += len(page)
            self._progress("objects", self._counts["objects"], None)
            for row in page:
                yield row.object_id, row
            after = page[-1].object_id

    async def _row(self, object_id: ObjectId) -> StoredObjectRow | None:
        before = ObjectId(UUID(int=object_id.int - 1)) if object_id.int else None
        page = await self._control.objects.all(after=before, limit=1)
        return page[0] if page and page[0].object_id == object_id else None

    async def _listing(
        self, prefix: str, parse: Callable[[str], ObjectId | None]
    ) -> AsyncIterator[tuple[ObjectId, ObjectInfo]]:
        async for info in self._store.list(prefix):
            object_id = parse(info.key)
            if object_id is None:
                self._counts["foreign_objects"] += 1
                continue
            self._counts["stored_objects"] += 1
            self._counts["stored_bytes"] += info.size_bytes
            yield object_id, info

    async def _head(self, key: str) -> ObjectInfo | None:
        try:
            return await self._store.head(key)
        except ObjectNotFoundError:
            return None


def _is_listed(key: str) -> bool:
    return (parse_block_key(key) or parse_split_key(key)) is not None


def _key_of(object_id: ObjectId, info: ObjectInfo | None) -> str:
    return info.key if info is not None else block_key(object_id)
