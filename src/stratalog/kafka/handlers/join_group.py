"""JoinGroup: a client becomes a member. It is answered when all have joined the generation."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import READ_GROUP
from stratalog.groups.classic.model import JoinAnswer, JoinRequest
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

_FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_VERSION_WITH_KNOWN_IDS = 4
_FIRST_VERSION_WITH_INSTANCES = 5
_FIRST_VERSION_WITH_NO_PROTOCOL = 7
_FIRST_VERSION_WITH_SKIPPING = 9


class JoinGroupProtocol(NamedTuple):
    name: str
    metadata: bytes


class JoinGroupBody(NamedTuple):
    group_id: str
    session_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: Sequence[JoinGroupProtocol]
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None


_MOST_ENTRIES = 1100
"""A group keeps the subscriptions of its members: some 256 KiB of each at the most."""


class JoinGroupHandler(Handler[JoinGroupBody]):
    key = ApiKey.JOIN_GROUP
    versions = Versions(0, 9, 6)
    rights = (READ_GROUP,)
    body = JoinGroupBody
    max_entries = _MOST_ENTRIES
    in_turn = False
    waits = True

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.classic_groups

    async def handle(self, request: Request, body: JoinGroupBody) -> Body:
        check_group_id(body.group_id)
        answer = await self._groups.join(body.group_id, _join_request(request, body))
        return _response(request, answer)

    def refuse(self, request: Request, body: JoinGroupBody, error: Exception) -> Body:
        return _response(request, JoinAnswer(member_id=body.member_id), group_code_of(error))


def _join_request(request: Request, body: JoinGroupBody) -> JoinRequest:
    version = request.version
    timed = version >= _FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    named = version >= _FIRST_VERSION_WITH_INSTANCES
    return JoinRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id if named else None,
        client_id=request.client_id or "",
        client_host=request.session.client_host,
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if timed else body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in body.protocols},
        requires_known_id=version >= _FIRST_VERSION_WITH_KNOWN_IDS,
        can_skip_assignment=version >= _FIRST_VERSION_WITH_SKIPPING,
    )


def _response(request: Request, answer: JoinAnswer, code: ErrorCode | None = None) -> Body:
    if code is None:
        code = ErrorCode.none if answer.error is None else code_of(answer.error)
    unnamed = None if request.version >= _FIRST_VERSION_WITH_NO_PROTOCOL else ""
    values = {
        "error_code": code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": unnamed if answer.protocol_name is None else answer.protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
    return write_response(ApiKey.JOIN_GROUP, request.version, values)
