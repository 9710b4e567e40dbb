"""Heartbeat: a member of a classic group is alive, and hears whether it has to join again."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response

_FIRST_VERSION_WITH_INSTANCES = 3


class HeartbeatHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: Any) -> Body:
        check_group_id(body.group_id)
        named = request.version >= _FIRST_VERSION_WITH_INSTANCES
        instance_id = body.group_instance_id if named else None
        await self._groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
        return _response(request, ErrorCode.none)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, group_code_of(error))


def _response(request: Request, code: ErrorCode) -> Body:
    return write_response(ApiKey.HEARTBEAT, request.version, {"error_code": code})
