"""DeleteGroups: groups without members are forgotten, with their offsets."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.errors import StratalogError
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response


class DeleteGroupsHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.groups

    async def handle(self, request: Request, body: Any) -> Body:
        codes = {group_id: await self._deleted(group_id) for group_id in body.groups_names}
        return _response(request, codes)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        return _response(request, dict.fromkeys(body.groups_names, group_code_of(error)))

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
