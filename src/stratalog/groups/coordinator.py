"""Coordinates the groups that the control plane has given to this broker.

A group is loaded when it is first asked for, and held in memory for as long as nobody else can have
it: while this broker's lease is surely alive. Whatever changes a group happens at once, in memory;
then it is saved under the group's term, and only then is anybody told. So another broker goes on
where this one ends, and what a deposed coordinator still does is refused by the control plane.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from stratalog.clock import Clock
from stratalog.cluster.membership import Membership
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.groups.errors import NotCoordinatorError
from stratalog.control.groups.model import (
    CommittedOffset,
    GroupKind,
    GroupOffsets,
    GroupRecord,
    GroupSummary,
    LeftOut,
    OffsetToCommit,
)
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.groups.errors import GroupNotEmptyError, GroupNotFoundError, NotLoadedError
from stratalog.groups.group import Committer, Group, GroupDescription
from stratalog.groups.held import HeldGroup
from stratalog.groups.offsets import OffsetWriter
from stratalog.groups.subscription import CONSUMER
from stratalog.ids import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")
Loader: TypeAlias = Callable[[GroupRecord, float], Group]
"""Makes a group of what was saved of it, at this time by the monotonic clock."""
Action: TypeAlias = Callable[[HeldGroup, float], T]
"""Changes the group at once, at this time by the monotonic clock."""

MOST_IDLE = 10_000
"""Groups in memory, above which those without members are forgotten, the oldest first."""
_SHORTEST_NAP_S = 0.01


class GroupCoordinator:
    def __init__(self, *, control: ControlPlane, membership: Membership, clock: Clock) -> None:
        self._control = control
        self._membership = membership
        self._clock = clock
        self._loaders: dict[GroupKind, Loader] = {}
        self._groups: dict[str, HeldGroup] = {}
        self._loading: dict[str, asyncio.Task[HeldGroup]] = {}
        self._offsets = OffsetWriter(control)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def loads(self, kind: GroupKind, loader: Loader) -> None:
        """Say how groups of a kind are loaded. One that was never saved is loaded as classic."""
        self._loaders[kind] = loader

    async def stop(self) -> None:
        """Hand the groups over: whoever waits is sent to look for the next coordinator."""
        self._is_stopped = True
        for held in list(self._groups.values()):
            self._drop(held)
        await self._offsets.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Groups.

    async def locate(self, group_id: str) -> BrokerInfo:
        """The group's coordinator, whichever broker that is."""
        preferred = self._membership.coordinator_of(group_id).broker_id
        try:
            return await self._control.groups.locate(group_id, preferred)
        except NotCoordinatorError:
            # The preferred one has just died, and the list of brokers does not know it yet.
            return await self._control.groups.locate(group_id, self._membership.broker_id)

    async def change(self, group_id: str, action: Action[T]) -> T:
        """Let `action` change the group. On return the change is saved and answers are out."""
        held = await self._held(group_id)
        result = action(held, self._clock.monotonic())
        await self._settle(held)
        return result

    async def look(self, group_id: str, action: Action[T]) -> T:
        """Like `change`, for what need not be saved: a look, or a sign of life."""
        return action(await self._held(group_id), self._clock.monotonic())

    async def describe(self, group_id: str) -> GroupDescription:
        """Raises `GroupNotFoundError` if nobody has ever used the group."""
        held = await self._held(group_id)
        await self._check_exists(held)
        return held.group.describe()

    async def delete(self, group_id: str) -> None:
        held = await self._held(group_id)
        await self._check_exists(held)
        if not held.group.is_empty:
            raise GroupNotEmptyError(f"group {group_id!r} has members")
        async with held.saving:
            try:
                await self._control.groups.delete(group_id, held.term)
            finally:
                self._drop(held)

    async def listed(self) -> list[GroupSummary]:
        """The groups that this broker answers for, so that all brokers' lists make one.

        A group whose coordinator is dead is listed by the broker that should get it.
        """
        return [
            self._with_present_state(summary)
            for summary in await self._control.groups.all()
            if self._answers_for(summary)
        ]

    # Offsets.

    async def commit_offsets(
        self, group_id: str, committer: Committer, offsets: Sequence[OffsetToCommit]
    ) -> LeftOut:
        """On return they are durable, but for those of partitions that do not exist."""
        held = await self._held(group_id)
        held.group.validate_commit(committer, self._clock.monotonic())
        commit = GroupOffsets(group_id=group_id, term=held.term, offsets=offsets)
        left_out = await self._offsets.commit(commit)
        if left_out is None:
            self._drop(held)
            raise _not_coordinator(group_id)
        return left_out

    async def fetch_offsets(
        self, group_id: str, committer: Committer, wanted: Sequence[TopicPartition] | None
    ) -> list[CommittedOffset]:
        """Read from the control plane each time, which knows every commit that was answered."""
        held = await self._held(group_id)
        held.group.validate_fetch(committer)
        return await self._control.groups.offsets(group_id, wanted)

    async def deletable_offsets(self, group_id: str) -> Callable[[str], bool]:
        """Which topics' offsets may be deleted: those that no member reads."""
        held = await self._held(group_id)
        await self._check_exists(held)
        group = held.group
        if not group.is_empty and group.protocol_type != CONSUMER:
            raise GroupNotEmptyError(f"group {group_id!r} has members")
        return lambda topic: not group.is_subscribed_to(topic)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        held = await self._held(group_id)
        await self._control.groups.delete_offsets(group_id, held.term, partitions)

    # Holding.

    async def _held(self, group_id: str) -> HeldGroup:
        held = self._groups.get(group_id)
        if held is not None and self._is_good(held):
            return held
        if held is not None:
            self._drop(held)
        if self._is_stopped or not self._membership.is_surely_alive:
            raise _not_coordinator(group_id)
        if group_id not in self._loading:
            loading = asyncio.create_task(self._load(group_id), name="group-load")
            self._loading[group_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(group_id, None))
        # One who gives up must not take the others along.
        return await asyncio.shield(self._loading[group_id])

    async def _load(self, group_id: str) -> HeldGroup:
        membership = self._membership
        lease_number = membership.lease_number
        record = await self._control.groups.open(
            group_id, membership.broker_id, membership.incarnation
        )
        held = HeldGroup(record, self._loaded(record), lease_number=lease_number)
        if not self._is_good(held):
            raise _not_coordinator(group_id)
        self._groups[group_id] = held
        self._arm(held)
        self._forget_idle()
        return held

    def _loaded(self, record: GroupRecord) -> Group:
        kind = record.kind if record.state else GroupKind.CLASSIC
        if kind not in self._loaders:
            raise NotLoadedError(f"group {record.group_id!r} is of a kind not known here: {kind}")
        return self._loaders[kind](record, self._clock.monotonic())

    def _is_good(self, held: HeldGroup) -> bool:
        membership = self._membership
        return (
            not self._is_stopped
            and membership.is_surely_alive
            and held.lease_number == membership.lease_number
        )

    def _drop(self, held: HeldGroup) -> None:
        held.is_dropped = True
        if self._groups.get(held.group_id) is held:
            del self._groups[held.group_id]
        if held.timer is not None:
            held.timer.cancel()
        held.fail_all(_not_coordinator(held.group_id))

    def _forget_idle(self) -> None:
        excess = len(self._groups) - MOST_IDLE
        if excess > 0:
            idle = [held for held in self._groups.values() if held.is_idle]
            for held in idle[:excess]:
                self._drop(held)

    async def _check_exists(self, held: HeldGroup) -> None:
        if held.was_saved or not held.group.is_empty:
            return
        if not await self._control.groups.offsets(held.group_id, None):
            raise GroupNotFoundError(f"there is no group {held.group_id!r}")

    # Saving.

    async def _settle(self, held: HeldGroup) -> None:
        if held.is_saved and not held.saving.locked():
            held.deliver(held.group.take_answers())
            self._arm(held)
            return
        # Not cut off when the client who caused it goes away.
        saving = asyncio.create_task(self._save_and_deliver(held), name="group-save")
        self._tasks.add(saving)
        saving.add_done_callback(self._tasks.discard)
        await asyncio.shield(saving)

    async def _save_and_deliver(self, held: HeldGroup) -> None:
        async with held.saving:
            if held.is_dropped:
                raise _not_coordinator(held.group_id)
            answers = held.group.take_answers()
            try:
                if not held.is_saved:
                    await self._save(held)
            except NotCoordinatorError:
                self._drop(held)
                raise
            except Exception as error:
                held.group.unsaved(error, self._clock.monotonic())
                held.fail((answer.ticket for answer in answers), error)
                held.deliver(held.group.take_answers())
                raise
            else:
                held.deliver(answers)
            finally:
                self._arm(held)

    async def _save(self, held: HeldGroup) -> None:
        group = held.group
        revision = group.revision
        await self._control.groups.save(
            GroupRecord(
                group_id=held.group_id,
                term=held.term,
                kind=group.kind,
                state_name=group.state_name,
                protocol_type=group.protocol_type,
                state=group.to_state(),
                empty_since_ms=None,
            )
        )
        # A group of another kind may have taken its place meanwhile, and is not saved by this.
        if held.group is group:
            held.saved_revision = revision
        held.was_saved = True

    # Time.

    def _arm(self, held: HeldGroup) -> None:
        """See to it that the group is woken at its next deadline. Too early does no harm."""
        deadline_s = held.group.deadline_s
        if held.is_dropped or deadline_s is None:
            return
        if held.timer is not None and not held.timer.done():
            if held.wakes_s <= deadline_s:
                return
            if held.timer is not asyncio.current_task():
                held.timer.cancel()
        held.wakes_s = deadline_s
        held.timer = asyncio.create_task(self._wake(held, deadline_s), name="group-timer")

    async def _wake(self, held: HeldGroup, deadline_s: float) -> None:
        await self._clock.sleep(max(deadline_s - self._clock.monotonic(), _SHORTEST_NAP_S))
        # The timer is over from here on; what comes now arms the next.
        held.timer = None
        if not self._is_good(held):
            self._drop(held)
            return
        held.group.tick(self._clock.monotonic())
        try:
            await self._settle(held)
        except StratalogError as error:
            log.warning("Group %r could not be saved: %s", held.group_id, error)
        except Exception:
            log.exception("Group %r could not be saved", held.group_id)

    # Listing.

    def _answers_for(self, summary: GroupSummary) -> bool:
        coordinator = summary.coordinator or self._membership.coordinator_of(summary.group_id)
        return coordinator.broker_id == self._membership.broker_id

    def _with_present_state(self, summary: GroupSummary) -> GroupSummary:
        held = self._groups.get(summary.group_id)
        if held is None:
            return summary
        return GroupSummary(
            group_id=summary.group_id,
            kind=held.group.kind,
            state_name=held.group.state_name,
            protocol_type=held.group.protocol_type,
            coordinator=summary.coordinator,
        )


def _not_coordinator(group_id: str) -> NotCoordinatorError:
    return NotCoordinatorError(f"this broker does not coordinate group {group_id!r}")
