"""A broker's part in groups, over a real control plane that saves when the test lets it."""

import asyncio
from uuid import uuid4

from tests.support.ledgers import ControlWrapper

from stratalog.cluster.membership import Membership
from stratalog.control.groups.model import GroupRecord
from stratalog.control.plane import ControlPlane
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.classic.model import JoinAnswer, JoinRequest, SyncRequest
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.limits import GroupLimits
from stratalog.settings import GroupsSettings
from stratalog.testing.clock import ManualClock

GROUP = "readers"
LEASE_MS = 600_000


class SlowControl(ControlWrapper):
    """Saves when the test lets it, or fails as the test asks."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.open = asyncio.Event()
        self.open.set()
        self.saving = asyncio.Event()
        self.failures: list[Exception] = []
        self.saved: list[GroupRecord] = []

    async def groups_save(self, record: GroupRecord) -> None:
        self.saving.set()
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        await self.inner.groups.save(record)
        self.saved.append(record)


class Node:
    """One broker's part in groups."""

    def __init__(
        self,
        control: SlowControl,
        clock: ManualClock,
        membership: Membership,
        settings: GroupsSettings | None = None,
    ) -> None:
        self.control = control
        self.clock = clock
        self.membership = membership
        settings = settings or GroupsSettings(initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(
            control=control,
            membership=membership,
            clock=clock,
            limits=GroupLimits(settings, clock),
        )
        self.classic = ClassicGroups(self.coordinator, settings)

    @classmethod
    async def start(cls, plane: ControlPlane, clock: ManualClock, port: int) -> "Node":
        membership = await Membership.join(
            control=plane,
            clock=clock,
            broker_id=None,
            host="here",
            port=port,
            rack=None,
            incarnation=uuid4(),
            lease_ms=LEASE_MS,
        )
        return cls(SlowControl(plane), clock, membership)

    async def stop(self) -> None:
        await self.coordinator.stop()
        await self.membership.leave()

    async def join(self, member_id: str = "", group_id: str = GROUP) -> JoinAnswer:
        return await self.classic.join(
            group_id,
            JoinRequest(
                member_id=member_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols={"range": b"\0\0\0\0\0\1\0\6events"},
                requires_known_id=False,
            ),
        )

    async def sync(self, joined: JoinAnswer, **assignments: bytes) -> bytes:
        given = {joined.member_id: assignments["own"]} if "own" in assignments else {}
        answer = await self.classic.sync(
            GROUP,
            SyncRequest(
                member_id=joined.member_id, generation=joined.generation, assignments=given
            ),
        )
        if answer.error is not None:
            raise answer.error
        return answer.assignment

    async def beat(self, joined: JoinAnswer) -> None:
        await self.classic.heartbeat(GROUP, joined.member_id, None, joined.generation)

    async def stable(self) -> JoinAnswer:
        joined = await self.join()
        assert await self.sync(joined, own=b"mine") == b"mine"
        return joined
