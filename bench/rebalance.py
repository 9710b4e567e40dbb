"""How long a rebalance takes, and how that grows with the number of members.

Run: python -m bench.rebalance [--members 5 50] [--rounds 5] [--heartbeat-ms 100]

Members of a classic group that do the minimum of the protocol. "Joined" is the time
from the first request until all of them hold their assignment of the same generation; "one left"
is that time for the members that stay. They learn of a rebalance by their heartbeats, which are
thus the
floor. The broker does not wait for more members when the first has come
(groups.initial_rebalance_delay_ms=0): that wait, 3 seconds unless set, would be most of every
figure. The figures are medians; the ratio is to the first row.
"""

import argparse
import asyncio
import statistics
import struct
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import uvloop
from bench.connection import Connection
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.heartbeat.v3.response import HeartbeatResponse
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v5.response import JoinGroupResponse
from kio.schema.leave_group.v3.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v3.response import LeaveGroupResponse
from kio.schema.sync_group.v3.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v3.response import SyncGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32, i32Timedelta

from stratalog.cli.bench import temporary_broker

TOPIC = b"orders"
PATIENCE_SECONDS = 60.0
SESSION = i32Timedelta.parse(timedelta(seconds=30))
# Version, topics, and no data of the user's own, as consumers encode them.
SUBSCRIPTION = struct.pack(f">hih{len(TOPIC)}si", 0, 1, len(TOPIC), TOPIC, -1)


def assignment_of(partition: int) -> bytes:
    return struct.pack(f">hih{len(TOPIC)}siii", 0, 1, len(TOPIC), TOPIC, 1, partition, -1)


class Group:
    """The members that hold an assignment, by generation."""

    def __init__(self) -> None:
        self.id = GroupId(f"group-{uuid4().hex[:8]}")
        self._generations: dict[Member, int] = {}
        self._changed = asyncio.Event()

    def assigned(self, member: "Member", generation: int) -> None:
        self._generations[member] = generation
        self._changed.set()

    async def stable(self, members: Sequence["Member"], after: int = 0) -> int:
        """Wait until all hold an assignment of one generation, which is later than `after`."""
        while True:
            held = {self._generations.get(member, 0) for member in members}
            if len(held) == 1 and min(held) > after:
                return held.pop()
            self._changed.clear()
            await self._changed.wait()


class Member:
    def __init__(self, group: Group, connection: Connection, heartbeat_s: float) -> None:
        self._group = group
        self._connection = connection
        self._heartbeat_s = heartbeat_s
        self._id = ""

    async def run(self) -> None:
        while True:
            joined = await self._join()
            if await self._sync(joined):
                self._group.assigned(self, joined.generation_id)
                await self._keep(joined.generation_id)

    async def leave(self, connection: Connection) -> None:
        """On a connection where no request of its own is under way."""
        identity = MemberIdentity(member_id=self._id)
        request = LeaveGroupRequest(group_id=self._group.id, members=(identity,))
        answer = await connection.ask(request, LeaveGroupResponse)
        assert answer.error_code is ErrorCode.none, answer.error_code

    async def _join(self) -> Any:
        while True:
            protocol = JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
            request = JoinGroupRequest(
                group_id=self._group.id,
                session_timeout=SESSION,
                rebalance_timeout=SESSION,
                member_id=self._id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            answer = await self._connection.ask(request, JoinGroupResponse)
            self._id = answer.member_id
            if answer.error_code is ErrorCode.none:
                return answer
            assert answer.error_code is ErrorCode.member_id_required, answer.error_code

    async def _sync(self, joined: Any) -> bool:
        """False if another rebalance has begun meanwhile. Only the leader gets the list of
        members."""
        request = SyncGroupRequest(
            group_id=self._group.id,
            generation_id=joined.generation_id,
            member_id=self._id,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=assignment_of(index)
                )
                for index, member in enumerate(joined.members)
            ),
        )
        answer = await self._connection.ask(request, SyncGroupResponse)
        return _goes_on(answer.error_code)

    async def _keep(self, generation: i32) -> None:
        """Send heartbeats until there is a rebalance."""
        request = HeartbeatRequest(
            group_id=self._group.id, generation_id=generation, member_id=self._id
        )
        goes_on = True
        while goes_on:
            await asyncio.sleep(self._heartbeat_s)
            answer = await self._connection.ask(request, HeartbeatResponse)
            goes_on = _goes_on(answer.error_code)


def _goes_on(error: ErrorCode) -> bool:
    assert error in (ErrorCode.none, ErrorCode.rebalance_in_progress), error
    return error is ErrorCode.none


class Times(NamedTuple):
    joined_s: float
    left_s: float


async def rebalance(address: str, count: int, heartbeat_s: float) -> Times:
    group = Group()
    connections = [await Connection.open(address) for _ in range(count + 1)]
    spare = connections[-1]
    members = [Member(group, connection, heartbeat_s) for connection in connections[:count]]
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as running:
        started = time.perf_counter()
        tasks = [running.create_task(member.run()) for member in members]
        generation = await group.stable(members)
        joined_s = time.perf_counter() - started
        tasks.pop().cancel()
        started = time.perf_counter()
        await members.pop().leave(spare)
        await group.stable(members, after=generation)
        left_s = time.perf_counter() - started
        for task in tasks:
            task.cancel()
    for connection in connections:
        await connection.close()
    return Times(joined_s, left_s)


async def measure(address: str, options: argparse.Namespace) -> None:
    print(f"heartbeats every {options.heartbeat_ms} ms, {options.rounds} rounds\n")
    print("members   joined   ratio   one left   ratio")
    first: Times | None = None
    for count in options.members:
        rounds = [
            await rebalance(address, count, options.heartbeat_ms / 1000)
            for _ in range(options.rounds)
        ]
        times = Times(*map(statistics.median, zip(*rounds, strict=True)))
        first = first or times
        joined, left = (mine / theirs for mine, theirs in zip(times, first, strict=True))
        print(
            f"{count:7} {times.joined_s * 1000:5.0f} ms {joined:7.2f}"
            f" {times.left_s * 1000:7.0f} ms {left:7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[5, 50])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--heartbeat-ms", type=int, default=100)
    options = parser.parse_args()
    with temporary_broker(["groups.initial_rebalance_delay_ms=0"]) as broker:
        uvloop.run(measure(broker.address, options))


if __name__ == "__main__":
    main()
