"""SyncGroup: the leader hands in the assignments, and every member gets its own."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.groups.classic_model import SyncAnswer, SyncRequest
from stratalog.groups.errors import InconsistentProtocolError
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response

_FIRST_VERSION_WITH_INSTANCES = 3
_FIRST_VERSION_WITH_PROTOCOLS = 5


class SyncGroupHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: Any) -> Body:
        check_group_id(body.group_id)
        answer = await self._groups.sync(body.group_id, _sync_request(request, body))
        if answer.error is not None:
            raise answer.error
        return _response(request, ErrorCode.none, answer)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, group_code_of(error), SyncAnswer())


def _sync_request(request: Request, body: Any) -> SyncRequest:
    named = request.version >= _FIRST_VERSION_WITH_INSTANCES
    agreed = request.version >= _FIRST_VERSION_WITH_PROTOCOLS
    if agreed and (body.protocol_type is None or body.protocol_name is None):
        raise InconsistentProtocolError("SyncGroup needs the protocol that was agreed on")
    return SyncRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id if named else None,
        generation=body.generation_id,
        protocol_type=body.protocol_type if agreed else None,
        protocol_name=body.protocol_name if agreed else None,
        assignments={each.member_id: each.assignment for each in body.assignments},
    )


def _response(request: Request, code: ErrorCode, answer: SyncAnswer) -> Body:
    values = {
        "error_code": code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
    return write_response(ApiKey.SYNC_GROUP, request.version, values)
