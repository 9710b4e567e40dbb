"""DescribeGroups: classic groups and their members.

A group that does not exist is "Dead", which until version 6 was no error.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_GROUP, Resource
from stratalog.errors import StratalogError
from stratalog.groups.group import GroupDescription
from stratalog.kafka.handlers.shared.authorized_operations import authorized_operations
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.server.work import FEW_LARGE_ANSWERS
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_NOT_FOUND = 6
_DEAD = "Dead"


class DescribeGroupsBody(NamedTuple):
    groups: Sequence[str]
    include_authorized_operations: bool = False


class DescribeGroupsHandler(Handler[DescribeGroupsBody]):
    key = ApiKey.DESCRIBE_GROUPS
    versions = Versions(0, 6, 5)
    rights = (DESCRIBE_GROUP,)
    body = DescribeGroupsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.admin.groups
        self._authorizer = components.admin.authorizer

    def is_heavy(self, body: DescribeGroupsBody) -> bool:
        return len(body.groups) > FEW_LARGE_ANSWERS

    async def handle(self, request: Request, body: DescribeGroupsBody) -> Body:
        groups = [await self._described(request, body, group_id) for group_id in body.groups]
        return write_response(ApiKey.DESCRIBE_GROUPS, request.version, {"groups": groups})

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)

    async def _described(self, request: Request, body: DescribeGroupsBody, group_id: str) -> Values:
        try:
            description = await self._groups.describe_classic(request.principal, group_id)
        except StratalogError as error:
            return _failed(request, group_id, error)
        operations = authorized_operations(
            self._authorizer,
            request.principal,
            Resource.GROUP,
            group_id,
            asked=body.include_authorized_operations,
        )
        return _values(group_id, description, operations)


def _values(group_id: str, description: GroupDescription, operations: int) -> Values:
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": description.state_name,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol_name,
        "authorized_operations": operations,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in description.members
        ],
    }


def _failed(request: Request, group_id: str, error: Exception) -> Values:
    code = group_code_of(error)
    dead = code is ErrorCode.group_id_not_found
    if dead and request.version < _FIRST_VERSION_WITH_NOT_FOUND:
        code = ErrorCode.none
    return {
        "error_code": code,
        "error_message": message_of(error),
        "group_id": group_id,
        "group_state": _DEAD if dead else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
