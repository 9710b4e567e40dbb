"""Notes of deletions, by which a recovery repeats the deletions that its ground does not know.

A deletion by a client is a change of the control plane alone. If the control plane goes back, the
records would be back as well. So each process that deletes keeps one object `deletions/<id>`, and
overwrites it with each deletion:

1. The control plane deletes. A crash after this step leaves a deletion without a note, of which the
   client has not heard.
2. The note is put. A store that fails costs the note, not the deletion: the log says so, and the
   next deletion of the process notes both.
3. The client is answered.

A note is true for ever, because the start of a log only moves forward. Of a topic that was deleted
and undeleted, by different processes perhaps, the newest note counts.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from stratalog.clock import Clock
from stratalog.errors import MALFORMED_JSON, StratalogError
from stratalog.ids import (
    Entropy,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
    new_uuid,
    system_entropy,
)
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.settings import DAY_MS

log = logging.getLogger(__name__)

DELETIONS_PREFIX = "deletions/"
NOTE_AGE_MS = 30 * DAY_MS
"""Older notes are dropped. The deleted records have left the store by then."""
_FORMAT = 1
_PUT_S = 10.0
"""The longest time for one put, as clients wait for it."""
_INT64_LAST = (1 << 63) - 1
_INT32_LAST = (1 << 31) - 1


class RecordsNote(NamedTuple):
    """The first offset of a partition that was not deleted."""

    before: Offset
    noted_ms: int


class TopicNote(NamedTuple):
    is_deleted: bool
    """False if the topic was undeleted."""
    noted_ms: int


@dataclass(slots=True)
class Deletions:
    records: dict[TopicPartition, RecordsNote] = field(default_factory=dict)
    topics: dict[TopicId, TopicNote] = field(default_factory=dict)

    def is_deleted(self, topic_id: TopicId) -> bool:
        note = self.topics.get(topic_id)
        return note is not None and note.is_deleted

    def add_records(self, key: TopicPartition, note: RecordsNote) -> None:
        self.records[key] = max(note, self.records.get(key, note))

    def add_topic(self, topic_id: TopicId, note: TopicNote) -> None:
        """Of notes of one time, the undeletion counts: it can be repeated."""
        known = self.topics.get(topic_id, note)
        self.topics[topic_id] = max(note, known, key=lambda each: (each[1], not each[0]))

    def add(self, other: "Deletions") -> None:
        for key, records in other.records.items():
            self.add_records(key, records)
        for topic_id, topic in other.topics.items():
            self.add_topic(topic_id, topic)

    def forget(self, oldest_ms: int) -> None:
        self.records = {key: n for key, n in self.records.items() if n.noted_ms > oldest_ms}
        self.topics = {key: n for key, n in self.topics.items() if n.noted_ms > oldest_ms}


class DeletionNotes:
    """The notes of one process."""

    def __init__(
        self, store: ObjectStore, *, clock: Clock, entropy: Entropy = system_entropy
    ) -> None:
        self._store = store
        self._clock = clock
        self._key = f"{DELETIONS_PREFIX}{new_uuid(entropy).hex}"
        self._deletions = Deletions()
        # Puts follow one another, so that none arrives behind a newer one.
        self._turn = asyncio.Lock()

    async def records_deleted(self, starts: Mapping[TopicPartition, Offset]) -> None:
        now_ms = self._clock.now_ms()
        for key, before in starts.items():
            self._deletions.add_records(key, RecordsNote(before, now_ms))
        if starts:
            await self._put()

    async def topics_deleted(self, topic_ids: Iterable[TopicId]) -> None:
        now_ms = self._clock.now_ms()
        noted = [*topic_ids]
        for topic_id in noted:
            self._deletions.add_topic(topic_id, TopicNote(True, now_ms))
        if noted:
            await self._put()

    async def topic_undeleted(self, topic_id: TopicId) -> None:
        self._deletions.add_topic(topic_id, TopicNote(False, self._clock.now_ms()))
        await self._put()

    async def _put(self) -> None:
        async with self._turn:
            self._deletions.forget(self._clock.now_ms() - NOTE_AGE_MS)
            try:
                async with asyncio.timeout(_PUT_S):
                    await self._store.put(self._key, [encode_deletions(self._deletions)])
            except (StratalogError, TimeoutError) as error:
                log.warning(
                    "A deletion was not noted in %s, so that it would have to be repeated after a"
                    " restore of the control plane: %r",
                    self._key,
                    error,
                )


def encode_deletions(deletions: Deletions) -> bytes:
    records = [
        {
            "topic": str(key.topic_id),
            "partition": key.partition,
            "before": n.before,
            "ms": n.noted_ms,
        }
        for key, n in deletions.records.items()
    ]
    topics = [
        {"topic": str(topic_id), "deleted": n.is_deleted, "ms": n.noted_ms}
        for topic_id, n in deletions.topics.items()
    ]
    return json.dumps({"format": _FORMAT, "records": records, "topics": topics}).encode() + b"\n"


def parse_deletions(data: bytes | bytearray | memoryview) -> Deletions | None:
    """Read a note. None if it is none, or damaged."""
    deletions = Deletions()
    try:
        fields = json.loads(bytes(data))
        if int(fields["format"]) > _FORMAT:
            return None
        for each in fields["records"]:
            index = _whole(each["partition"], _INT32_LAST)
            key = TopicPartition(TopicId(UUID(each["topic"])), PartitionIndex(index))
            before = Offset(_whole(each["before"], _INT64_LAST))
            deletions.add_records(key, RecordsNote(before, _whole(each["ms"], _INT64_LAST)))
        for each in fields["topics"]:
            note = TopicNote(bool(each["deleted"]), _whole(each["ms"], _INT64_LAST))
            deletions.add_topic(TopicId(UUID(each["topic"])), note)
    except MALFORMED_JSON:
        return None
    return deletions


def _whole(value: object, last: int) -> int:
    if type(value) is not int or not 0 <= value <= last:
        raise ValueError(f"{value!r} is no number from 0 to {last}")
    return value


async def read_deletions(store: ObjectStore) -> tuple[Deletions, list[str]]:
    """Return all notes in the store, and the keys of damaged ones."""
    deletions, unreadable = Deletions(), list[str]()
    async for info in store.list(DELETIONS_PREFIX):
        try:
            found = parse_deletions((await store.get(info.key)).data)
        except ObjectNotFoundError:
            continue
        if found is None:
            unreadable.append(f"{info.key}: it is no note of deletions, or damaged")
        else:
            deletions.add(found)
    return deletions, unreadable
