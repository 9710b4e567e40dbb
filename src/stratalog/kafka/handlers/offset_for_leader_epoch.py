"""OffsetForLeaderEpoch: the end of an epoch, for consumers that check for a truncated log.

Acknowledged records are never truncated here, so the answer is always at or beyond the position of
the consumer. Epochs outlive their records: a consumer far behind is not sent to the start.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_TOPIC
from stratalog.control.log.model import EpochEnd, EpochQuery
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.handlers.shared.leader_epochs import epoch_code
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class OffsetForLeaderPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderTopic(NamedTuple):
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochBody(NamedTuple):
    topics: Sequence[OffsetForLeaderTopic]


class OffsetForLeaderEpochHandler(Handler[OffsetForLeaderEpochBody]):
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions = Versions(2, 4, 4)
    rights = (DESCRIBE_TOPIC,)
    body = OffsetForLeaderEpochBody
    in_every_worker = True

    def __init__(self, components: DataComponents) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: OffsetForLeaderEpochBody) -> Body:
        topics = await self._catalog.named([asked.topic for asked in body.topics])
        ends = await self._ends(body, topics)
        results = []
        for asked in body.topics:
            topic = topics.get(asked.topic)
            partitions = [
                _partition(one, None if topic is None else ends[_query(topic, one)])
                for one in asked.partitions
            ]
            results.append({"topic": asked.topic, "partitions": partitions})
        return write_response(ApiKey.OFFSET_FOR_LEADER_EPOCH, request.version, {"topics": results})

    async def _ends(
        self, body: OffsetForLeaderEpochBody, topics: Mapping[str, Topic]
    ) -> dict[EpochQuery, EpochEnd | None]:
        queries = [
            _query(topic, one)
            for asked in body.topics
            if (topic := topics.get(asked.topic)) is not None
            for one in asked.partitions
        ]
        return dict(zip(queries, await self._control.log.epoch_ends(queries), strict=True))


def _query(topic: Topic, one: OffsetForLeaderPartition) -> EpochQuery:
    return EpochQuery(
        partition=TopicPartition(topic.id, PartitionIndex(one.partition)), epoch=one.leader_epoch
    )


def _partition(one: OffsetForLeaderPartition, end: EpochEnd | None) -> Values:
    if end is None:
        return _failed(one, ErrorCode.unknown_topic_or_partition)
    code = epoch_code(one.current_leader_epoch, end.current_epoch)
    if code:
        return _failed(one, code)
    return {
        "error_code": ErrorCode.none,
        "partition": one.partition,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }


def _failed(one: OffsetForLeaderPartition, code: ErrorCode) -> Values:
    return {"error_code": code, "partition": one.partition}
