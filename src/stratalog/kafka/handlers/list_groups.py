"""ListGroups: the groups of this broker. Clients ask every broker and put the lists together."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.group_model import GroupSummary
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response

_FIRST_VERSION_WITH_STATES = 4
_FIRST_VERSION_WITH_TYPES = 5


class ListGroupsHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.groups

    async def handle(self, request: Request, body: Any) -> Body:
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

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, group_code_of(error), [])


def _lowered(names: Any) -> set[str]:
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
