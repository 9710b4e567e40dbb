"""Heartbeat: a sign of life of a classic group's member. The answer may ask it to join again."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import READ_GROUP
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

_FIRST_VERSION_WITH_INSTANCES = 3


class HeartbeatBody(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatHandler(Handler[HeartbeatBody]):
    key = ApiKey.HEARTBEAT
    versions = Versions(0, 4, 4)
    rights = (READ_GROUP,)
    body = HeartbeatBody
    in_turn = False

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: HeartbeatBody) -> Body:
        check_group_id(body.group_id)
        named = request.version >= _FIRST_VERSION_WITH_INSTANCES
        instance_id = body.group_instance_id if named else None
        await self._groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
        return _response(request, ErrorCode.none)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


def _response(request: Request, code: ErrorCode) -> Body:
    return write_response(ApiKey.HEARTBEAT, request.version, {"error_code": code})
