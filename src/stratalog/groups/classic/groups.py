"""The classic groups of this broker. JoinGroup and SyncGroup wait until their group can answer."""

import asyncio
from collections.abc import Sequence
from typing import cast

from stratalog.control.groups.model import GroupKind, GroupRecord
from stratalog.errors import StratalogError
from stratalog.groups.classic.group import ClassicGroup
from stratalog.groups.classic.member import protocols_bytes
from stratalog.groups.classic.model import (
    ClassicLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import InconsistentProtocolError, UnknownMemberError
from stratalog.groups.loaded_group import LoadedGroup
from stratalog.groups.member_size import check_member_size
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
        self._max_member_bytes = settings.max_member_bytes
        coordinator.register_loader(GroupKind.CLASSIC, self._load)

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        size = protocols_bytes(request.protocols)
        check_member_size(group_id, size, most=self._max_member_bytes)

        def begin(loaded: LoadedGroup, now_s: float) -> "asyncio.Future[object]":
            group = self._to_join(loaded)
            self._coordinator.limits.check_join(group_id, group.added_bytes(request))
            ticket, answer = loaded.ticket()
            group.join(ticket, request, now_s)
            return answer

        waiting = await self._coordinator.change(group_id, begin, maker=request.client_host)
        return cast(JoinAnswer, await waiting)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        largest = max(map(len, request.assignments.values()), default=0)
        check_member_size(group_id, largest, most=self._max_member_bytes)

        def begin(loaded: LoadedGroup, now_s: float) -> "asyncio.Future[object]":
            group = _classic(loaded)
            added = group.added_by_assignments(request.assignments)
            self._coordinator.limits.check_assignment(group_id, added)
            ticket, answer = loaded.ticket()
            group.sync(ticket, request, now_s)
            return answer

        waiting = await self._coordinator.change(group_id, begin)
        return cast(SyncAnswer, await waiting)

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Note a sign of life of a member. Raises if the member is to join again."""

        def beat(loaded: LoadedGroup, now_s: float) -> None:
            _classic(loaded).heartbeat(member_id, instance_id, generation, now_s)

        await self._coordinator.look(group_id, beat)

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[StratalogError | None]:
        """Remove members. Return an error, or None, for each of them."""

        def go(loaded: LoadedGroup, now_s: float) -> list[StratalogError | None]:
            return _classic(loaded).leave(leaving, now_s)

        return await self._coordinator.change(group_id, go)

    def _load(self, record: GroupRecord, now_s: float) -> ClassicGroup:
        if not record.state:
            return ClassicGroup(self._limits, entropy=self._entropy)
        return ClassicGroup.resumed(record.state, self._limits, now_s, entropy=self._entropy)

    def _to_join(self, loaded: LoadedGroup) -> ClassicGroup:
        """Return the group that a member joins. An empty consumer group becomes a classic one."""
        if loaded.group.kind is not GroupKind.CLASSIC:
            if not loaded.group.is_empty:
                raise InconsistentProtocolError(
                    f"group {loaded.group_id!r} has members that use group.protocol=consumer"
                )
            loaded.replace(
                ClassicGroup(self._limits, entropy=self._entropy, generation=loaded.group.epoch)
            )
        return _classic(loaded)


def _classic(loaded: LoadedGroup) -> ClassicGroup:
    if not isinstance(loaded.group, ClassicGroup):
        raise UnknownMemberError(f"group {loaded.group_id!r} has no members that join and sync")
    return loaded.group
