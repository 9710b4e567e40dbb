"""LeaveGroup: one member leaves, or an administrator removes several."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import READ_GROUP
from stratalog.errors import StratalogError
from stratalog.groups.classic.model import Leaving
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_MANY = 3


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None


class LeaveGroupBody(NamedTuple):
    group_id: str
    member_id: str = ""
    members: Sequence[MemberIdentity] = ()


class LeaveGroupHandler(Handler[LeaveGroupBody]):
    key = ApiKey.LEAVE_GROUP
    versions = Versions(0, 5, 4)
    rights = (READ_GROUP,)
    body = LeaveGroupBody
    in_turn = False

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: LeaveGroupBody) -> Body:
        check_group_id(body.group_id)
        leaving = _leaving(request, body)
        errors = await self._groups.leave(body.group_id, leaving)
        if request.version < _FIRST_VERSION_WITH_MANY:
            return _response(request, _code(errors[0]), [])
        members = [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "error_code": _code(error),
            }
            for each, error in zip(leaving, errors, strict=True)
        ]
        return _response(request, ErrorCode.none, members)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


def _leaving(request: Request, body: LeaveGroupBody) -> list[Leaving]:
    if request.version < _FIRST_VERSION_WITH_MANY:
        return [Leaving(member_id=body.member_id)]
    return [
        Leaving(member_id=member.member_id, instance_id=member.group_instance_id)
        for member in body.members
    ]


def _code(error: StratalogError | None) -> ErrorCode:
    return ErrorCode.none if error is None else code_of(error)


def _response(request: Request, code: ErrorCode, members: Sequence[Values]) -> Body:
    values = {"error_code": code, "members": members}
    return write_response(ApiKey.LEAVE_GROUP, request.version, values)
