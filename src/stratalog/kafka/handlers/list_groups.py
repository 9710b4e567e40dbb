"""ListGroups: the groups of this broker. Clients ask every broker and join the lists."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
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
    rights = (DESCRIBE_CLUSTER, DESCRIBE_GROUP)
    body = ListGroupsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.admin.groups

    def is_heavy(self, body: ListGroupsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: ListGroupsBody) -> Body:
        has_states = request.version >= _FIRST_VERSION_WITH_STATES
        has_types = request.version >= _FIRST_VERSION_WITH_TYPES
        listed = await self._groups.list_groups(
            request.principal,
            states=body.states_filter if has_states else (),
            kinds=body.types_filter if has_types else (),
        )
        return _response(request, ErrorCode.none, listed)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


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
