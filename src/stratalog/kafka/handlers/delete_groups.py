"""DeleteGroups: groups without members are forgotten, with their offsets."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.group_names import check_group_id
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
    rights = (Right(Operation.DELETE, Resource.GROUP),)
    body = DeleteGroupsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups

    async def handle(self, request: Request, body: DeleteGroupsBody) -> Body:
        codes = {group_id: await self._deleted(group_id) for group_id in body.groups_names}
        return _response(request, codes)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)

    async def _deleted(self, group_id: str) -> ErrorCode:
        try:
            check_group_id(group_id, may_be_empty=True)
            await self._groups.delete(group_id)
        except StratalogError as error:
            return group_code_of(error)
        return ErrorCode.none


def _response(request: Request, codes: dict[str, ErrorCode]) -> Body:
    results = [{"group_id": group_id, "error_code": code} for group_id, code in codes.items()]
    return write_response(ApiKey.DELETE_GROUPS, request.version, {"results": results})
