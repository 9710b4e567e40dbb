"""ListGroups: the groups of this broker. Clients ask every broker and put the lists together."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.groups.model import GroupSummary
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

_FIRST_VERSION_WITH_STATES = 4
_FIRST_VERSION_WITH_TYPES = 5


class ListGroupsBody(NamedTuple):
    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()


class ListGroupsHandler(Handler[ListGroupsBody]):
    key = ApiKey.LIST_GROUPS
    versions = Versions(0, 5, 3)
    rights = (
        Right(Operation.DESCRIBE, Resource.CLUSTER),
        Right(Operation.DESCRIBE, Resource.GROUP),
    )
    body = ListGroupsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups

    async def handle(self, request: Request, body: ListGroupsBody) -> Body:
        states = _lowered(
            body.states_filter if request.version >= _FIRST_VERSION_WITH_STATES else ()
        )
        types = _lowered(body.types_filter if request.version >= _FIRST_VERSION_WITH_TYPES else ())
        listed = [
            summary
            for summary in await self._groups.listed()
            if (not states or summary.state_name.lower() in states)
            and (not types or summary.kind.value in types)
        ]
        return _response(request, ErrorCode.none, listed)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


def _lowered(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}


def _response(request: Request, code: ErrorCode, listed: list[GroupSummary]) -> Body:
    groups = [
        {
            "group_id": summary.group_id,
            "protocol_type": summary.protocol_type,
            "group_state": summary.state_name,
            # As Kafka writes it: with a capital letter.
            "group_type": summary.kind.value.capitalize(),
        }
        for summary in listed
    ]
    values = {"error_code": code, "groups": groups}
    return write_response(ApiKey.LIST_GROUPS, request.version, values)
