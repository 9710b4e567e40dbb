"""DeleteGroups: groups without members are deleted, with their offsets."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DELETE_GROUP
from stratalog.errors import StratalogError
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class DeleteGroupsBody(NamedTuple):
    groups_names: Sequence[str]


class DeleteGroupsHandler(Handler[DeleteGroupsBody]):
    key = ApiKey.DELETE_GROUPS
    versions = Versions(0, 2, 2)
    rights = (DELETE_GROUP,)
    body = DeleteGroupsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.admin.groups

    def is_heavy(self, body: DeleteGroupsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DeleteGroupsBody) -> Body:
        outcomes = await self._groups.delete(request.principal, body.groups_names)
        results = [
            {"group_id": group_id, "error_code": _code(outcome)}
            for group_id, outcome in outcomes.items()
        ]
        return write_response(ApiKey.DELETE_GROUPS, request.version, {"results": results})

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


def _code(outcome: object) -> ErrorCode:
    return group_code_of(outcome) if isinstance(outcome, StratalogError) else ErrorCode.none
