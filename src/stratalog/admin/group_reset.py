"""The rules of resetting a group's offsets, for an admin who has the facts from brokers.

The command line works over Kafka's protocol, so these rules need neither a control plane nor a
principal: the broker that commits the new offsets checks the rights of the client.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stratalog.admin.errors import GroupInUseError


class Target(NamedTuple):
    """A partition, the offset from which the group is to go on, and the present end."""

    partition: int
    start: int
    end: int


class Move(NamedTuple):
    """The change that a reset makes in one partition."""

    partition: int
    committed: int | None
    new: int
    end: int
    lag: int


class Reader(NamedTuple):
    """A member of a group, as people know it."""

    client_id: str
    host: str


def plan_reset(targets: Sequence[Target], committed: Mapping[int, int]) -> list[Move]:
    """The moves, given the offsets that the group has committed, by partition."""
    return [
        Move(
            partition=target.partition,
            committed=committed.get(target.partition),
            new=target.start,
            end=target.end,
            lag=target.end - target.start,
        )
        for target in targets
    ]


def check_unused(group: str, readers: Sequence[Reader]) -> None:
    """Members would go on from their own positions, and commit them over the new offsets."""
    if readers:
        first = readers[0]
        raise GroupInUseError(
            f'group "{group}" has {count_of(readers)}, such as {first.client_id} '
            f"at {first.host}: stop them first"
        )


def count_of(readers: Sequence[object]) -> str:
    return "1 member" if len(readers) == 1 else f"{len(readers)} members"
