"""Groups with members that no client asks for any more.

If the members of a group die together with its coordinator, no broker notices the members' death: a
group is loaded when it is first asked for, and only a loaded group has deadlines. Its row would say
for ever that it has members, and its offsets would never expire. So each broker looks now and then
for groups that it should coordinate and has not loaded, and loads them.
"""

import asyncio
import logging

from stratalog.clock import Clock
from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.groups.coordinator import GroupCoordinator

log = logging.getLogger(__name__)

_LEASES_BETWEEN = 6
"""Most groups come back by themselves: their members look for a coordinator when a lease is
over."""
_AT_ONCE = 1000
"""Groups loaded by one look, each in a transaction of its own."""


class AbandonedGroups:
    def __init__(
        self,
        *,
        control: ControlPlane,
        coordinator: GroupCoordinator,
        membership: Membership,
        clock: Clock,
        lease_ms: int,
    ) -> None:
        self._control = control
        self._coordinator = coordinator
        self._membership = membership
        self._clock = clock
        self._interval_s = _LEASES_BETWEEN * lease_ms / 1000
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run_forever(), name="abandoned-groups")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> int:
        """Load the groups that fall to this broker, and return their number. Members that do not
        come back are then removed when their sessions end."""
        own = self._membership.broker_id
        loaded = 0
        for group_id, coordinator in await self._control.groups.with_members(own):
            falls_to = coordinator or self._membership.coordinator_of(group_id).broker_id
            if falls_to == own and not self._coordinator.has(group_id):
                loaded += await self._load(group_id)
            if loaded == _AT_ONCE:
                break
        return loaded

    async def _load(self, group_id: str) -> bool:
        try:
            await self._coordinator.load(group_id)
        except StratalogError as error:
            # Its state is damaged, or another broker has it by now. Other groups follow.
            log.info("Group %r was not loaded: %s", group_id, error)
            return False
        return True

    async def _run_forever(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            try:
                await self.look()
            except StratalogError as error:
                log.warning("Groups without a coordinator were not looked for: %s", error)
            except Exception:
                log.exception("Groups without a coordinator were not looked for")
