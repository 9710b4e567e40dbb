"""The state of a classic group as bytes, for its row in the control plane: JSON, bytes in base 64.

Fields may be added, so a state from an older broker may lack fields, and one from a newer broker
may have more.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stratalog.errors import MALFORMED_JSON
from stratalog.groups.classic.member import ClassicMember
from stratalog.groups.classic.model import ClassicState
from stratalog.groups.errors import GroupStateDamagedError


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedGroup:
    state: ClassicState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    members: Sequence[ClassicMember]


def encode(saved: SavedGroup) -> bytes:
    values = {
        "state": saved.state.value,
        "generation": saved.generation,
        "protocol_type": saved.protocol_type,
        "protocol_name": saved.protocol_name,
        "leader": saved.leader,
        "members": [_member_values(member) for member in saved.members],
    }
    return json.dumps(values, separators=(",", ":")).encode()


def decode(state: bytes) -> SavedGroup:
    try:
        values = json.loads(state)
        return SavedGroup(
            state=ClassicState(values["state"]),
            generation=values["generation"],
            protocol_type=values["protocol_type"],
            protocol_name=values["protocol_name"],
            leader=values["leader"],
            members=[_member(each) for each in values["members"]],
        )
    except MALFORMED_JSON as error:
        raise GroupStateDamagedError(f"the saved state of a group is damaged: {error}") from error


def _member_values(member: ClassicMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [[name, _text(data)] for name, data in member.protocols.items()],
        "assignment": _text(member.assignment),
    }


def _member(values: dict[str, Any]) -> ClassicMember:
    return ClassicMember(
        member_id=values["member_id"],
        instance_id=values["instance_id"],
        client_id=values["client_id"],
        client_host=values["client_host"],
        session_timeout_ms=values["session_timeout_ms"],
        rebalance_timeout_ms=values["rebalance_timeout_ms"],
        protocols={name: b64decode(data) for name, data in values["protocols"]},
        assignment=b64decode(values["assignment"]),
        is_new=False,
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode()
