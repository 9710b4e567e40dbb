"""ListOffsets: the start and the end of a partition, and the offset that belongs to a time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_TOPIC
from stratalog.control.log.model import TimeQuery
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.handlers.shared.leader_epochs import KnownEpoch, wrong_epochs
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response
from stratalog.topic.model import TimedOffset

_LATEST = -1
_EARLIEST = -2
_NEWEST = -3
"""The record with the greatest timestamp."""
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_FIRST_VERSIONS = {_LATEST: 1, _EARLIEST: 1, _NEWEST: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
"""The first version of the API in which a negative timestamp has its meaning, as in Kafka."""
_READ_COMMITTED = 1
_FIRST_VERSION_WITH_ISOLATION = 2
_FIRST_VERSION_WITH_EPOCHS = 4
_MOST_READS = 16
"""The look-ups by time that this broker does at once. Each reads a part of an object."""


class _Query(NamedTuple):
    topic: str
    partition: TopicPartition
    timestamp: int


class _Answer(NamedTuple):
    """`found` is None when there is no such record, as in an empty partition."""

    code: ErrorCode
    found: TimedOffset | None = None


class ListOffsetsPartition(NamedTuple):
    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(NamedTuple):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsBody(NamedTuple):
    topics: Sequence[ListOffsetsTopic]
    isolation_level: int = 0


class ListOffsetsHandler(Handler[ListOffsetsBody]):
    key = ApiKey.LIST_OFFSETS
    versions = Versions(1, 11, 6)
    rights = (DESCRIBE_TOPIC,)
    body = ListOffsetsBody
    in_every_worker = True

    def __init__(self, components: DataComponents) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._offsets = components.offsets
        self._control = components.control
        self._failures = components.failures
        self._reads = asyncio.Semaphore(_MOST_READS)

    async def handle(self, request: Request, body: ListOffsetsBody) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        queries = [
            _Query(
                asked.name,
                TopicPartition(topic.id, PartitionIndex(partition.partition_index)),
                partition.timestamp,
            )
            for asked in body.topics
            if (topic := topics.get(asked.name)) is not None
            for partition in asked.partitions
        ]
        committed = (
            request.version >= _FIRST_VERSION_WITH_ISOLATION
            and body.isolation_level == _READ_COMMITTED
        )
        async with request.work.away():
            answers = await self._answers(request.version, queries, committed=committed)
        wrong = await self._wrong_epochs(request, body, topics)
        results = []
        for asked in body.topics:
            topic = topics.get(asked.name)
            partitions = [
                _UNKNOWN
                if topic is None
                else wrong.get(key := TopicPartition(topic.id, PartitionIndex(one.partition_index)))
                or answers[_Query(asked.name, key, one.timestamp)]
                for one in asked.partitions
            ]
            if topic is not None and _UNKNOWN in partitions:
                self._catalog.forget(topic.id)
            results.append(_topic(asked, partitions))
        return write_response(ApiKey.LIST_OFFSETS, request.version, {"topics": results})

    async def _wrong_epochs(
        self, request: Request, body: ListOffsetsBody, topics: Mapping[str, Topic]
    ) -> dict[TopicPartition, _Answer]:
        if request.version < _FIRST_VERSION_WITH_EPOCHS:
            return {}
        known = [
            KnownEpoch(topic, PartitionIndex(one.partition_index), one.current_leader_epoch)
            for asked in body.topics
            if (topic := topics.get(asked.name)) is not None
            for one in asked.partitions
        ]
        wrong = await wrong_epochs(self._control, known)
        for key in wrong:
            self._catalog.forget(key.topic_id)
        return {key: _Answer(code) for key, code in wrong.items()}

    async def _answers(
        self, version: int, queries: Sequence[_Query], *, committed: bool
    ) -> dict[_Query, _Answer]:
        """Queries for one boundary are asked together, each look-up by time on its own, so that
        one unreadable object fails one partition."""
        answers = {
            query: _Answer(ErrorCode.unsupported_version)
            for query in queries
            if query.timestamp < 0 and version < _FIRST_VERSIONS.get(query.timestamp, version + 1)
        }
        for boundary in (_LATEST, _EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED):
            asked = [q for q in queries if q.timestamp == boundary and q not in answers]
            answers.update(await self._boundaries(boundary, asked, committed=committed))
        others = [query for query in queries if query not in answers]
        found = await asyncio.gather(*(self._by_time(query) for query in others))
        answers.update(zip(others, found, strict=True))
        return answers

    async def _boundaries(
        self, boundary: int, queries: Sequence[_Query], *, committed: bool
    ) -> dict[_Query, _Answer]:
        if not queries:
            return {}
        partitions = [query.partition for query in queries]
        found: Mapping[TopicPartition, TimedOffset | None]
        if boundary == _LATEST:
            found = await self._offsets.latest(partitions, committed=committed)
        elif boundary == _EARLIEST:
            found = await self._offsets.earliest(partitions)
        elif boundary == _EARLIEST_LOCAL:
            found = await self._offsets.earliest_local(partitions)
        else:
            found = await self._offsets.latest_tiered(partitions)
        return {
            query: _Answer(ErrorCode.none, found[query.partition])
            if query.partition in found
            else _UNKNOWN
            for query in queries
        }

    async def _by_time(self, query: _Query) -> _Answer:
        try:
            async with self._reads:
                found = await self._look_up(query)
            if found is not None:
                return _Answer(ErrorCode.none, found)
            exists = await self._offsets.earliest([query.partition])
        except StratalogError as error:
            self._failures.note(query.topic, query.partition.partition, error)
            return _Answer(code_of(error))
        return _Answer(ErrorCode.none) if exists else _UNKNOWN

    async def _look_up(self, query: _Query) -> TimedOffset | None:
        if query.timestamp == _NEWEST:
            return (await self._offsets.newest([query.partition])).get(query.partition)
        time = TimeQuery(
            topic_id=query.partition.topic_id,
            partition=query.partition.partition,
            timestamp=query.timestamp,
        )
        return (await self._offsets.at_time([time]))[0]


_UNKNOWN = _Answer(ErrorCode.unknown_topic_or_partition)


def _topic(asked: ListOffsetsTopic, answers: Sequence[_Answer]) -> Values:
    return {
        "name": asked.name,
        "partitions": [
            _partition(one.partition_index, answer)
            for one, answer in zip(asked.partitions, answers, strict=True)
        ],
    }


def _partition(index: int, answer: _Answer) -> Values:
    values: dict[str, ErrorCode | int] = {"partition_index": index, "error_code": answer.code}
    if answer.found is not None:
        values["offset"] = answer.found.offset
        values["timestamp"] = answer.found.timestamp
        values["leader_epoch"] = answer.found.leader_epoch
    return values
