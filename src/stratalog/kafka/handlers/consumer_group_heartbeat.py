"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays or leaves, reports the partitions that it
owns, and is given its assignment."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import DESCRIBE_TOPIC, READ_GROUP
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import Partitions
from stratalog.ids import PartitionIndex, TopicId, TopicPartition, new_uuid
from stratalog.kafka.handlers.shared.partition_lists import by_topic
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_PATTERNS = 1
"""From this version on, members also choose their own ids."""
_NO_INTERVAL = timedelta(0)


class TopicPartitions(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[int]


class ConsumerGroupHeartbeatBody(NamedTuple):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    server_assignor: str | None
    topic_partitions: Sequence[TopicPartitions] | None
    subscribed_topic_regex: str | None = None


class ConsumerGroupHeartbeatHandler(Handler[ConsumerGroupHeartbeatBody]):
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    versions = Versions(0, 1, 0)
    rights = (READ_GROUP, DESCRIBE_TOPIC)
    body = ConsumerGroupHeartbeatBody
    in_turn = False

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.consumer_groups

    async def handle(self, request: Request, body: ConsumerGroupHeartbeatBody) -> Body:
        check_group_id(body.group_id)
        answer = await self._groups.heartbeat(_heartbeat(request, body))
        interval_ms = self._groups.heartbeat_ms(body.group_id)
        return _response(request, _values(answer, interval_ms))

    def refuse(self, request: Request, body: ConsumerGroupHeartbeatBody, error: Exception) -> Body:  # noqa: ARG002
        return _response(
            request,
            {
                "error_code": group_code_of(error),
                "error_message": message_of(error),
                "member_epoch": 0,
                "heartbeat_interval": _NO_INTERVAL,
            },
        )


def _values(answer: HeartbeatAnswer, interval_ms: int) -> Values:
    assignment = None
    if answer.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": indexes}
                for topic_id, indexes in by_topic(answer.assignment).items()
            ]
        }
    return {
        "error_code": ErrorCode.none,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": timedelta(milliseconds=interval_ms),
        "assignment": assignment,
    }


def _heartbeat(request: Request, body: ConsumerGroupHeartbeatBody) -> Heartbeat:
    has_pattern = request.version >= _FIRST_VERSION_WITH_PATTERNS
    member_id = body.member_id
    if not member_id and not has_pattern:
        member_id = str(new_uuid())
    names = body.subscribed_topic_names
    return Heartbeat(
        group_id=body.group_id,
        member_id=member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_pattern=body.subscribed_topic_regex if has_pattern else None,
        assignor=body.server_assignor,
        owned=_owned(body),
        client_id=request.client_id or "",
        client_host=request.session.client_host,
    )


def _owned(body: ConsumerGroupHeartbeatBody) -> Partitions | None:
    if body.topic_partitions is None:
        return None
    return frozenset(
        TopicPartition(TopicId(topic.topic_id), PartitionIndex(index))
        for topic in body.topic_partitions
        if topic.topic_id is not None
        for index in topic.partitions
    )


def _response(request: Request, values: Values) -> Body:
    return write_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, request.version, values)
