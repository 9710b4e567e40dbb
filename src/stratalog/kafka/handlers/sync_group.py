"""SyncGroup: the group's leader sends the assignments, and every member gets its own."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import READ_GROUP
from stratalog.groups.classic.model import SyncAnswer, SyncRequest
from stratalog.groups.errors import InconsistentProtocolError
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

_FIRST_VERSION_WITH_INSTANCES = 3
_FIRST_VERSION_WITH_PROTOCOLS = 5


class SyncGroupAssignment(NamedTuple):
    member_id: str
    assignment: bytes


class SyncGroupBody(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    assignments: Sequence[SyncGroupAssignment]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncGroupHandler(Handler[SyncGroupBody]):
    key = ApiKey.SYNC_GROUP
    versions = Versions(0, 5, 4)
    rights = (READ_GROUP,)
    body = SyncGroupBody
    in_turn = False
    waits = True

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: SyncGroupBody) -> Body:
        check_group_id(body.group_id)
        answer = await self._groups.sync(body.group_id, _sync_request(request, body))
        if answer.error is not None:
            raise answer.error
        return _response(request, ErrorCode.none, answer)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)


def _sync_request(request: Request, body: SyncGroupBody) -> SyncRequest:
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
