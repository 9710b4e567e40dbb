"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays, tells what it owns, or leaves, and hears
what it shall own."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from kio.schema.errors import ErrorCode

from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import Partitions
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of, message_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.partition_lists import by_topic
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_FIRST_VERSION_WITH_PATTERNS = 1
"""From here on members also make their ids themselves."""
_NO_INTERVAL = timedelta(0)


class ConsumerGroupHeartbeatHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.consumer_groups
        interval_ms = components.settings.groups.consumer_heartbeat_interval_ms
        self._interval = timedelta(milliseconds=interval_ms)

    async def handle(self, request: Request, body: Any) -> Body:
        check_group_id(body.group_id)
        answer = await self._groups.heartbeat(_heartbeat(request, body))
        return _response(request, self._values(answer))

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(
            request,
            {
                "error_code": group_code_of(error),
                "error_message": message_of(error),
                "member_epoch": 0,
                "heartbeat_interval": _NO_INTERVAL,
            },
        )

    def _values(self, answer: HeartbeatAnswer) -> Values:
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
            "heartbeat_interval": self._interval,
            "assignment": assignment,
        }


def _heartbeat(request: Request, body: Any) -> Heartbeat:
    has_pattern = request.version >= _FIRST_VERSION_WITH_PATTERNS
    member_id = body.member_id
    if not member_id and not has_pattern:
        member_id = str(uuid4())
    names = body.subscribed_topic_names
    return Heartbeat(
        group_id=body.group_id,
        member_id=member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout,
        topic_names=None if names is None else frozenset(names),
        topic_pattern=body.subscribed_topic_regex if has_pattern else None,
        assignor=body.server_assignor,
        owned=_owned(body),
        client_id=request.client_id or "",
        client_host=request.client_host,
    )


def _owned(body: Any) -> Partitions | None:
    if body.topic_partitions is None:
        return None
    return frozenset(
        TopicPartition(topic.topic_id, PartitionIndex(index))
        for topic in body.topic_partitions
        for index in topic.partitions
    )


def _response(request: Request, values: Values) -> Body:
    return write_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, request.version, values)
