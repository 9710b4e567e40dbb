"""The state of a consumer group as bytes, for the broker that coordinates the group next.

The format is JSON, because people look into the control plane, and because a newer broker may add
fields that an older one ignores. Partitions are written by topic, as lists of indexes.
"""

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from stratalog.errors import MALFORMED_JSON
from stratalog.groups.consumer.model import (
    GroupState,
    Member,
    MemberState,
    Partitions,
    Subscription,
    TopicShape,
)
from stratalog.groups.errors import GroupStateDamagedError
from stratalog.ids import PartitionIndex, TopicId, TopicPartition


def encode_state(state: GroupState) -> bytes:
    document = {
        "group_epoch": state.group_epoch,
        "assignment_epoch": state.assignment_epoch,
        "members": [_member_out(member) for member in state.members.values()],
        "target": {key: _partitions_out(value) for key, value in state.target.items()},
        "topics": [
            {"id": str(each.topic_id), "name": each.name, "partitions": each.partition_count}
            for each in state.topics.values()
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_state(data: bytes) -> GroupState:
    try:
        return _state_in(json.loads(data))
    except MALFORMED_JSON as error:
        raise GroupStateDamagedError(
            f"the saved state of a consumer group is not readable: {error!r}"
        ) from error


def _state_in(document: Any) -> GroupState:
    members = [_member_in(each) for each in document["members"]]
    topics = [
        TopicShape(
            topic_id=_topic_id(each["id"]),
            name=each["name"],
            partition_count=each["partitions"],
        )
        for each in document["topics"]
    ]
    return GroupState(
        group_epoch=document["group_epoch"],
        assignment_epoch=document["assignment_epoch"],
        members={member.member_id: member for member in members},
        target={key: _partitions_in(value) for key, value in document["target"].items()},
        topics={topic.topic_id: topic for topic in topics},
    )


def _member_out(member: Member) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "rack": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "names": sorted(member.subscription.names),
        "pattern": member.subscription.pattern,
        "assignor": member.assignor,
        "topics": sorted(map(str, member.topic_ids)),
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state,
        "assigned": _partitions_out(member.assigned),
        "revoking": _partitions_out(member.revoking),
    }


def _member_in(document: Any) -> Member:
    return Member(
        member_id=document["id"],
        instance_id=document["instance"],
        rack_id=document["rack"],
        client_id=document["client_id"],
        client_host=document["client_host"],
        rebalance_timeout_ms=document["rebalance_timeout_ms"],
        subscription=Subscription(names=frozenset(document["names"]), pattern=document["pattern"]),
        assignor=document["assignor"],
        topic_ids=frozenset(map(_topic_id, document["topics"])),
        epoch=document["epoch"],
        previous_epoch=document["previous_epoch"],
        state=MemberState(document["state"]),
        assigned=_partitions_in(document["assigned"]),
        revoking=_partitions_in(document["revoking"]),
    )


def _partitions_out(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(str(topic_id), []).append(partition)
    return by_topic


def _partitions_in(by_topic: Any) -> Partitions:
    return frozenset(
        TopicPartition(_topic_id(topic_id), PartitionIndex(index))
        for topic_id, indexes in by_topic.items()
        for index in indexes
    )


def _topic_id(text: str) -> TopicId:
    return TopicId(UUID(text))
