"""OffsetForLeaderEpoch: where an epoch ended, for consumers that look for a truncated log.

Nothing that was acknowledged is ever truncated here, so the answer is always at or beyond where
the consumer is. Epochs outlive their records: a consumer far behind is not sent to the start.
"""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import EpochEnd, EpochQuery, Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.leader_epochs import epoch_code
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response


class OffsetForLeaderEpochHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: Any) -> Body:
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

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [
            {
                "topic": asked.topic,
                "partitions": [_failed(one, code_of(error)) for one in asked.partitions],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.OFFSET_FOR_LEADER_EPOCH, request.version, {"topics": results})

    async def _ends(
        self, body: Any, topics: Mapping[str, Topic]
    ) -> dict[EpochQuery, EpochEnd | None]:
        queries = [
            _query(topic, one)
            for asked in body.topics
            if (topic := topics.get(asked.topic)) is not None
            for one in asked.partitions
        ]
        return dict(zip(queries, await self._control.epoch_ends(queries), strict=True))


def _query(topic: Topic, one: Any) -> EpochQuery:
    return EpochQuery(
        partition=TopicPartition(topic.id, PartitionIndex(one.partition)), epoch=one.leader_epoch
    )


def _partition(one: Any, end: EpochEnd | None) -> Values:
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


def _failed(one: Any, code: ErrorCode) -> Values:
    return {"error_code": code, "partition": one.partition}
