"""LeaveGroup: one member leaves, or an administrator removes several."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.errors import StratalogError
from stratalog.groups.classic_model import Leaving
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of, group_code_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response

_FIRST_VERSION_WITH_MANY = 3


class LeaveGroupHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: Any) -> Body:
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

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, group_code_of(error), [])


def _leaving(request: Request, body: Any) -> list[Leaving]:
    if request.version < _FIRST_VERSION_WITH_MANY:
        return [Leaving(member_id=body.member_id)]
    return [
        Leaving(member_id=member.member_id, instance_id=member.group_instance_id)
        for member in body.members
    ]


def _code(error: StratalogError | None) -> ErrorCode:
    return ErrorCode.none if error is None else code_of(error)


def _response(request: Request, code: ErrorCode, members: list[dict[str, Any]]) -> Body:
    values = {"error_code": code, "members": members}
    return write_response(ApiKey.LEAVE_GROUP, request.version, values)
