"""Limits on the groups that any client can make, and on the memory that their members take."""

from collections import OrderedDict

from stratalog.allowance import HourlyAllowance
from stratalog.clock import Clock
from stratalog.groups.errors import GroupMemoryError, NewGroupsError
from stratalog.settings import GroupsSettings

MEMBER_BYTES = 1200
"""About the memory of a member beside its texts, its subscription and its assignment."""
PARTITION_BYTES = 110
"""About the memory of a partition in the assignment of a member."""
NAME_BYTES = 80
"""About the memory of a topic's name in a subscription, beside its letters. The three were measured
with tracemalloc, on groups of thousands of members."""
_MOST_ADDRESSES = 10_000
"""The clients that made groups last. One that was forgotten has its whole allowance again."""
_JOINS_SHARE = 0.75
"""Members join as long as the memory is not filled to this share. The rest is left for their
assignments, so that groups that are there can rebalance."""


class GroupLimits:
    def __init__(self, settings: GroupsSettings, clock: Clock) -> None:
        self.max_groups = settings.max_groups
        self.used_bytes = 0
        """The memory of all groups that this broker has loaded, as their groups estimate it."""
        self._max_bytes = settings.max_state_bytes
        self._per_hour = settings.new_groups_per_hour
        self._clock = clock
        self._allowances: OrderedDict[str, HourlyAllowance] = OrderedDict()

    def count_new(self, group_id: str, client_host: str) -> None:
        """Count a group that does not exist yet. Raise if its client has made too many."""
        allowance = self._allowances.get(client_host)
        if allowance is None:
            allowance = self._allowances[client_host] = HourlyAllowance(self._per_hour, self._clock)
        self._allowances.move_to_end(client_host)
        if len(self._allowances) > _MOST_ADDRESSES:
            self._allowances.popitem(last=False)
        if not allowance.take():
            raise NewGroupsError(
                f"group {group_id!r} is not made: {client_host.lstrip('/') or 'this client'} has"
                f" made {self._per_hour} groups in an hour (groups.new_groups_per_hour)"
            )

    def check_join(self, group_id: str, added_bytes: int) -> None:
        """Raise if a member is to grow, or to be added, by more bytes than may be used."""
        self._check(group_id, added_bytes, int(self._max_bytes * _JOINS_SHARE))

    def check_assignment(self, group_id: str, added_bytes: int) -> None:
        self._check(group_id, added_bytes, self._max_bytes)

    def _check(self, group_id: str, added_bytes: int, most: int) -> None:
        if added_bytes > 0 and self.used_bytes + added_bytes > most:
            raise GroupMemoryError(
                f"group {group_id!r} cannot grow by {added_bytes} bytes: the groups of this broker"
                f" take {self.used_bytes} bytes (groups.max_state_bytes is {self._max_bytes})"
            )
