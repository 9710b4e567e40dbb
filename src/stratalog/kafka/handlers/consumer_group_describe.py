"""ConsumerGroupDescribe: groups whose members use the consumer protocol, and how far each is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, Resource
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.groups.consumer.model import NO_PARTITIONS, GroupState, Member, Partitions
from stratalog.ids import TopicId
from stratalog.kafka.handlers.shared.authorized_operations import authorized_operations
from stratalog.kafka.handlers.shared.partition_lists import by_topic
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.server.work import FEW_LARGE_ANSWERS
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_CONSUMER_MEMBER = 1


class ConsumerGroupDescribeBody(NamedTuple):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeHandler(Handler[ConsumerGroupDescribeBody]):
    key = ApiKey.CONSUMER_GROUP_DESCRIBE
    versions = Versions(0, 1, 0)
    rights = (DESCRIBE_GROUP, DESCRIBE_TOPIC)
    body = ConsumerGroupDescribeBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.admin.groups
        self._authorizer = components.admin.authorizer
        self._catalog = components.catalog

    def is_heavy(self, body: ConsumerGroupDescribeBody) -> bool:
        return len(body.group_ids) > FEW_LARGE_ANSWERS

    async def handle(self, request: Request, body: ConsumerGroupDescribeBody) -> Body:
        groups = [await self._described(request, body, each) for each in body.group_ids]
        return _response(request, groups)

    def refuse(self, request: Request, body: ConsumerGroupDescribeBody, error: Exception) -> Body:
        return _response(request, [_failed(each, error) for each in body.group_ids])

    async def _described(
        self, request: Request, body: ConsumerGroupDescribeBody, group_id: str
    ) -> Values:
        try:
            state = await self._groups.describe_consumer(request.principal, group_id)
            topics = await self._catalog.with_ids(sorted(_topic_ids(state)))
        except StratalogError as error:
            return _failed(group_id, error)
        operations = authorized_operations(
            self._authorizer,
            request.principal,
            Resource.GROUP,
            group_id,
            asked=body.include_authorized_operations,
        )
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "group_id": group_id,
            "group_state": state.name,
            "group_epoch": state.group_epoch,
            "assignment_epoch": state.assignment_epoch,
            "assignor_name": state.assignor,
            "authorized_operations": operations,
            "members": [_member(state, each, topics) for each in state.members.values()],
        }


def _topic_ids(state: GroupState) -> set[TopicId]:
    return {
        partition.topic_id
        for member in state.members.values()
        for partition in member.assigned | state.target.get(member.member_id, NO_PARTITIONS)
    }


def _member(state: GroupState, member: Member, topics: Mapping[TopicId, Topic]) -> Values:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.subscription.names),
        "subscribed_topic_regex": member.subscription.pattern,
        "assignment": _assignment(member.assigned, topics),
        "target_assignment": _assignment(state.target.get(member.member_id, NO_PARTITIONS), topics),
        "member_type": _CONSUMER_MEMBER,
    }


def _assignment(partitions: Partitions, topics: Mapping[TopicId, Topic]) -> Values:
    """Topics that were deleted have no name to be shown by, and are left out, as Kafka does."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topics[topic_id].name, "partitions": indexes}
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in topics
        ]
    }


def _failed(group_id: str, error: Exception) -> Values:
    return {
        "error_code": group_code_of(error),
        "error_message": message_of(error),
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _response(request: Request, groups: list[Values]) -> Body:
    return write_response(ApiKey.CONSUMER_GROUP_DESCRIBE, request.version, {"groups": groups})
