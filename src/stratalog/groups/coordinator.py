"""Coordinates the groups that the control plane has given to this broker.

A group is loaded when it is first asked for. It stays in memory for as long as no other broker can
have it, which is while this broker's lease is surely alive. A change of a group happens in memory
at once. Then it is saved under the group's term, and only then are clients answered. So another
broker can continue where this one ends, and the control plane refuses the writes of a deposed
coordinator.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from stratalog.groups.group import CONSUMER, Committer, Group, GroupDescription
from stratalog.groups.limits import GroupLimits
from stratalog.groups.loaded_group import LoadedGroup
from stratalog.groups.offset_writer import OffsetWriter
from stratalog.ids import TopicPartition
from stratalog.settings import GroupsSettings

log = logging.getLogger(__name__)

T = TypeVar("T")
Loader: TypeAlias = Callable[[GroupRecord, float], Group]
"""Makes a group from its saved state, at this time of the monotonic clock."""
Action: TypeAlias = Callable[[LoadedGroup, float], T]
"""Changes the group at once, at this time of the monotonic clock."""

MOST_IDLE = 10_000
"""The number of groups in memory above which groups without members are dropped, oldest first."""
_NO_TERM = -1
_SHORTEST_NAP_S = 0.01


class GroupCoordinator:
    def __init__(
        self,
        *,
        control: ControlPlane,
        membership: Membership,
        clock: Clock,
        limits: GroupLimits | None = None,
    ) -> None:
        self._control = control
        self.limits = limits or GroupLimits(GroupsSettings(), clock)
        self._membership = membership
        self._clock = clock
        self._loaders: dict[GroupKind, Loader] = {}
        self._groups: dict[str, LoadedGroup] = {}
        self._loading: dict[str, asyncio.Task[LoadedGroup]] = {}
        self._offsets = OffsetWriter(control)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def register_loader(self, kind: GroupKind, loader: Loader) -> None:
        """Declare how groups of a kind are loaded. A group that was never saved is loaded as a
        classic group."""
        self._loaders[kind] = loader

    async def stop(self) -> None:
        """Hand the groups over. Waiting clients are answered that they must find the next
        coordinator."""
        self._is_stopped = True
        for loaded in list(self._groups.values()):
            self._drop(loaded)
        await self._offsets.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Groups.

    async def locate(self, group_id: str) -> BrokerInfo:
        """Return the broker that coordinates the group. A group without a coordinator gets one."""
        preferred = self._membership.coordinator_of(group_id).broker_id
        try:
            return await self._control.groups.locate(group_id, preferred)
        except NotCoordinatorError:
            # The preferred broker has just died, and the list of brokers here is not current.
            return await self._control.groups.locate(group_id, self._membership.broker_id)

    async def change(self, group_id: str, action: Action[T], *, maker: str | None = None) -> T:
        """Let `action` change the group. On return the change is saved, and answers are out.

        Only a `maker`, the address of a client that may make groups, makes a row for a group that
        was never used.
        """
        loaded = await (self._present(group_id) if maker is None else self._made(group_id, maker))
        result = action(loaded, self._clock.monotonic())
        self._count(loaded)
        await self._settle(loaded)
        return result

    async def look(self, group_id: str, action: Action[T]) -> T:
        """Run an action that changes nothing that must be saved: a read, or a sign of life."""
        return action(await self._present(group_id), self._clock.monotonic())

    async def describe(self, group_id: str) -> GroupDescription:
        """Raises `GroupNotFoundError` if the group was never used."""
        loaded = await self._present(group_id)
        await self._check_exists(loaded)
        return loaded.group.describe()

    async def delete(self, group_id: str) -> None:
        loaded = await self._present(group_id)
        await self._check_exists(loaded)
        if not loaded.group.is_empty:
            raise GroupNotEmptyError(f"group {group_id!r} has members")
        async with loaded.saving:
            try:
                await self._control.groups.delete(group_id, loaded.term)
            finally:
                self._drop(loaded)

    async def listed(self) -> list[GroupSummary]:
        """Return the groups that this broker lists. The lists of all brokers together name each
        group once: a group whose coordinator is dead is listed by the broker that should get it.
        """
        return [
            self._with_present_state(summary)
            for summary in await self._control.groups.all()
            if self._answers_for(summary)
        ]

    async def configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the configs of all groups that have any, whichever broker coordinates them."""
        return await self._control.groups.configs()

    # Offsets.

    async def commit_offsets(
        self, group_id: str, committer: Committer, offsets: Sequence[OffsetToCommit]
    ) -> LeftOut:
        """Commit offsets. On return they are durable, except for partitions that do not exist,
        which are returned."""
        stranger = await self._present(group_id)
        stranger.group.validate_commit(committer, self._clock.monotonic())
        loaded = await self._made(group_id, committer.client_host)
        loaded.group.validate_commit(committer, self._clock.monotonic())
        commit = GroupOffsets(group_id=group_id, term=loaded.term, offsets=offsets)
        left_out = await self._offsets.commit(commit)
        if left_out is None:
            self._drop(loaded)
            raise _not_coordinator(group_id)
        return left_out

    async def fetch_offsets(
        self, group_id: str, committer: Committer, wanted: Sequence[TopicPartition] | None
    ) -> list[CommittedOffset]:
        """Return committed offsets. They are read from the control plane each time, which knows
        every commit that was answered."""
        loaded = await self._present(group_id)
        loaded.group.validate_fetch(committer)
        return await self._control.groups.offsets(group_id, wanted)

    async def deletable_offsets(self, group_id: str) -> Callable[[str], bool]:
        """Return a predicate of topics. Offsets may be deleted for topics that no member reads."""
        loaded = await self._present(group_id)
        await self._check_exists(loaded)
        group = loaded.group
        if not group.is_empty and group.protocol_type != CONSUMER:
            raise GroupNotEmptyError(f"group {group_id!r} has members")
        return lambda topic: not group.is_subscribed_to(topic)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        loaded = await self._loaded(group_id)
        if not loaded.was_saved:
            # A group that has never had members has no state yet, and would go with its offsets. As
            # in Kafka it stays behind without them, until it is deleted or expires.
            async with loaded.saving:
                await self._save(loaded)
        await self._control.groups.delete_offsets(group_id, loaded.term, partitions)

    # Loading.

    def has(self, group_id: str) -> bool:
        """Return whether the group is in memory, so that its deadlines count."""
        loaded = self._groups.get(group_id)
        return loaded is not None and self._is_good(loaded)

    async def load(self, group_id: str) -> None:
        """Load a group that no client asks for."""
        await self._loaded(group_id)

    async def _present(self, group_id: str) -> LoadedGroup:
        """Return the group. One that was never used is empty and stays unknown: clients ask about
        any name, and a row for each would fill the control plane."""
        if group_id in self._groups or await self._control.groups.exists(group_id):
            return await self._loaded(group_id)
        if self._is_stopped or not self._membership.is_surely_alive:
            raise _not_coordinator(group_id)
        record = GroupRecord(
            group_id=group_id,
            term=_NO_TERM,
            kind=GroupKind.CLASSIC,
            state_name="",
            protocol_type="",
            state=b"",
            empty_since_ms=None,
        )
        group = self._restored(record)
        return LoadedGroup(record, group, lease_number=self._membership.lease_number)

    async def _made(self, group_id: str, maker: str) -> LoadedGroup:
        """Return the group, which this client makes if it does not exist."""
        if group_id not in self._groups and not await self._control.groups.exists(group_id):
            self.limits.count_new(group_id, maker)
        return await self._loaded(group_id)

    async def _loaded(self, group_id: str) -> LoadedGroup:
        loaded = self._groups.get(group_id)
        if loaded is not None and self._is_good(loaded):
            return loaded
        if loaded is not None:
            self._drop(loaded)
        if self._is_stopped or not self._membership.is_surely_alive:
            raise _not_coordinator(group_id)
        if group_id not in self._loading:
            loading = asyncio.create_task(self._load(group_id), name="group-load")
            self._loading[group_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(group_id, None))
        # A client that goes away must not cancel the loading for the other clients.
        return await asyncio.shield(self._loading[group_id])

    async def _load(self, group_id: str) -> LoadedGroup:
        membership = self._membership
        lease_number = membership.lease_number
        record = await self._control.groups.open(
            group_id, membership.broker_id, membership.incarnation, most=self.limits.max_groups
        )
        loaded = LoadedGroup(record, self._restored(record), lease_number=lease_number)
        if not self._is_good(loaded):
            raise _not_coordinator(group_id)
        self._groups[group_id] = loaded
        self._count(loaded)
        self._arm(loaded)
        self._forget_idle()
        return loaded

    def _restored(self, record: GroupRecord) -> Group:
        kind = record.kind if record.state else GroupKind.CLASSIC
        if kind not in self._loaders:
            raise NotLoadedError(f"group {record.group_id!r} is of a kind not known here: {kind}")
        return self._loaders[kind](record, self._clock.monotonic())

    def _is_good(self, loaded: LoadedGroup) -> bool:
        membership = self._membership
        return (
            not self._is_stopped
            and membership.is_surely_alive
            and loaded.lease_number == membership.lease_number
        )

    def _drop(self, loaded: LoadedGroup) -> None:
        loaded.is_dropped = True
        if self._groups.get(loaded.group_id) is loaded:
            del self._groups[loaded.group_id]
        self._count(loaded)
        if loaded.timer is not None:
            loaded.timer.cancel()
        loaded.fail_all(_not_coordinator(loaded.group_id))

    def _count(self, loaded: LoadedGroup) -> None:
        """Count the memory of a group that may have changed."""
        size_bytes = 0 if loaded.is_dropped else loaded.group.size_bytes
        self.limits.used_bytes += size_bytes - loaded.counted_bytes
        loaded.counted_bytes = size_bytes

    def _forget_idle(self) -> None:
        excess = len(self._groups) - MOST_IDLE
        if excess > 0:
            idle = [loaded for loaded in self._groups.values() if loaded.is_idle]
            for loaded in idle[:excess]:
                self._drop(loaded)

    async def _check_exists(self, loaded: LoadedGroup) -> None:
        if loaded.was_saved or not loaded.group.is_empty:
            return
        if not await self._control.groups.offsets(loaded.group_id, None):
            raise GroupNotFoundError(f"there is no group {loaded.group_id!r}")

    # Saving.

    async def _settle(self, loaded: LoadedGroup) -> None:
        if loaded.is_saved and not loaded.saving.locked():
            loaded.deliver(loaded.group.take_answers())
            self._arm(loaded)
            return
        # A task of its own, so that a client that goes away does not cut the save off.
        saving = asyncio.create_task(self._save_and_deliver(loaded), name="group-save")
        self._tasks.add(saving)
        saving.add_done_callback(self._tasks.discard)
        await asyncio.shield(saving)

    async def _save_and_deliver(self, loaded: LoadedGroup) -> None:
        async with loaded.saving:
            if loaded.is_dropped:
                raise _not_coordinator(loaded.group_id)
            answers = loaded.group.take_answers()
            try:
                if not loaded.is_saved:
                    await self._save(loaded)
            except NotCoordinatorError:
                self._drop(loaded)
                raise
            except Exception as error:
                loaded.group.unsaved(error, self._clock.monotonic())
                self._count(loaded)
                loaded.fail((answer.ticket for answer in answers), error)
                loaded.deliver(loaded.group.take_answers())
                raise
            else:
                loaded.deliver(answers)
            finally:
                self._arm(loaded)

    async def _save(self, loaded: LoadedGroup) -> None:
        group = loaded.group
        revision = group.revision
        await self._control.groups.save(
            GroupRecord(
                group_id=loaded.group_id,
                term=loaded.term,
                kind=group.kind,
                state_name=group.state_name,
                protocol_type=group.protocol_type,
                state=group.to_state(),
                empty_since_ms=None,
            )
        )
        # A group of another kind may have replaced it meanwhile, which this did not save.
        if loaded.group is group:
            loaded.saved_revision = revision
        loaded.was_saved = True

    # Time.

    def _arm(self, loaded: LoadedGroup) -> None:
        """Make sure that the group wakes at its next deadline. Waking too early does no harm."""
        deadline_s = loaded.group.deadline_s
        if loaded.is_dropped or deadline_s is None:
            return
        if loaded.timer is not None and not loaded.timer.done():
            if loaded.wakes_s <= deadline_s:
                return
            if loaded.timer is not asyncio.current_task():
                loaded.timer.cancel()
        loaded.wakes_s = deadline_s
        loaded.timer = asyncio.create_task(self._wake(loaded, deadline_s), name="group-timer")

    async def _wake(self, loaded: LoadedGroup, deadline_s: float) -> None:
        await self._clock.sleep(max(deadline_s - self._clock.monotonic(), _SHORTEST_NAP_S))
        # This timer has done its work, so that the calls below may arm the next one.
        loaded.timer = None
        if not self._is_good(loaded):
            self._drop(loaded)
            return
        loaded.group.tick(self._clock.monotonic())
        self._count(loaded)
        try:
            await self._settle(loaded)
        except StratalogError as error:
            log.warning("Group %r could not be saved: %s", loaded.group_id, error)
        except Exception:
            log.exception("Group %r could not be saved", loaded.group_id)

    # Listing.

    def _answers_for(self, summary: GroupSummary) -> bool:
        coordinator = summary.coordinator or self._membership.coordinator_of(summary.group_id)
        return coordinator.broker_id == self._membership.broker_id

    def _with_present_state(self, summary: GroupSummary) -> GroupSummary:
        loaded = self._groups.get(summary.group_id)
        if loaded is None:
            return summary
        return GroupSummary(
            group_id=summary.group_id,
            kind=loaded.group.kind,
            state_name=loaded.group.state_name,
            protocol_type=loaded.group.protocol_type,
            coordinator=summary.coordinator,
        )


def _not_coordinator(group_id: str) -> NotCoordinatorError:
    return NotCoordinatorError(f"this broker does not coordinate group {group_id!r}")
