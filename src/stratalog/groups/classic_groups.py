"""The classic groups of this broker: requests in, answers when the group has got so far."""

import asyncio
from collections.abc import Sequence
from typing import cast

from stratalog.control.groups.model import GroupKind, GroupRecord
from stratalog.errors import StratalogError
from stratalog.groups.classic import ClassicGroup
from stratalog.groups.classic_model import (
    ClassicLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import InconsistentProtocolError, UnknownMemberError
from stratalog.groups.held import HeldGroup
from stratalog.ids import Entropy, system_entropy
from stratalog.settings import GroupsSettings


class ClassicGroups:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: GroupsSettings,
        *,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._coordinator = coordinator
        self._entropy = entropy
        self._limits = ClassicLimits(
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            min_session_timeout_ms=settings.min_session_timeout_ms,
            max_session_timeout_ms=settings.max_session_timeout_ms,
            max_size=settings.max_size,
        )
        coordinator.loads(GroupKind.CLASSIC, self._load)

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        def begin(held: HeldGroup, now_s: float) -> "asyncio.Future[object]":
            group = self._to_join(held)
            ticket, answer = held.ticket()
            group.join(ticket, request, now_s)
            return answer

        waiting = await self._coordinator.change(group_id, begin)
        return cast(JoinAnswer, await waiting)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        def begin(held: HeldGroup, now_s: float) -> "asyncio.Future[object]":
            group = _classic(held)
            ticket, answer = held.ticket()
            group.sync(ticket, request, now_s)
            return answer

        waiting = await self._coordinator.change(group_id, begin)
        return cast(SyncAnswer, await waiting)

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Raises what is wrong, if anything."""

        def beat(held: HeldGroup, now_s: float) -> None:
            _classic(held).heartbeat(member_id, instance_id, generation, now_s)

        await self._coordinator.look(group_id, beat)

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[StratalogError | None]:
        """What became of each."""

        def go(held: HeldGroup, now_s: float) -> list[StratalogError | None]:
            return _classic(held).leave(leaving, now_s)

        return await self._coordinator.change(group_id, go)

    def _load(self, record: GroupRecord, now_s: float) -> ClassicGroup:
        if not record.state:
            return ClassicGroup(self._limits, entropy=self._entropy)
        return ClassicGroup.resumed(record.state, self._limits, now_s, entropy=self._entropy)

    def _to_join(self, held: HeldGroup) -> ClassicGroup:
        """A group that is empty becomes a classic one when the first member joins it."""
        if held.group.kind is not GroupKind.CLASSIC:
            if not held.group.is_empty:
                raise InconsistentProtocolError(
                    f"group {held.group_id!r} has members that use group.protocol=consumer"
                )
            held.replace(
                ClassicGroup(self._limits, entropy=self._entropy, generation=held.group.epoch)
            )
        return _classic(held)


def _classic(held: HeldGroup) -> ClassicGroup:
    if not isinstance(held.group, ClassicGroup):
        raise UnknownMemberError(f"group {held.group_id!r} has no members that join and sync")
    return held.group
