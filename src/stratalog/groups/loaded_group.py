"""One group in the memory of its coordinator."""

import asyncio
from collections.abc import Iterable
from itertools import count

from stratalog.control.groups.model import GroupRecord
from stratalog.groups.group import Answer, Group


class LoadedGroup:
    def __init__(self, record: GroupRecord, group: Group, *, lease_number: int) -> None:
        self.group_id = record.group_id
        self.term = record.term
        self.group = group
        self.lease_number = lease_number
        """The number of the broker's lease when the group was loaded. The group is valid under this
        lease only."""
        self.was_saved = bool(record.state)
        self.saved_revision = group.revision
        self.saving = asyncio.Lock()
        """Held while the group is being saved, so that saves cannot overtake each other."""
        self.counted_bytes = 0
        """The memory of the group, as counted last."""
        self.is_dropped = False
        self.timer: asyncio.Task[None] | None = None
        self.wakes_s = 0.0
        """The time at which the timer goes off."""
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}

    @property
    def is_saved(self) -> bool:
        return self.group.revision == self.saved_revision

    @property
    def is_idle(self) -> bool:
        """True if nothing is lost when the group is dropped and loaded again later."""
        return (
            self.group.is_empty and self.is_saved and not self._waiting and not self.saving.locked()
        )

    def replace(self, group: Group) -> None:
        """Put a group of another kind in its place, which is a change to be saved."""
        self.group = group
        self.saved_revision = group.revision - 1

    def ticket(self) -> tuple[int, "asyncio.Future[object]"]:
        """Return a ticket for a request, and the future of its answer."""
        ticket = next(self._tickets)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        return ticket, future

    def deliver(self, answers: Iterable[Answer]) -> None:
        for ticket, value in answers:
            future = self._waiting.pop(ticket, None)
            # A client that has gone is not waiting any more.
            if future is not None and not future.done():
                future.set_result(value)

    def fail(self, tickets: Iterable[int], error: Exception) -> None:
        for ticket in list(tickets):
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_exception(error)
                # The client may have its error already and never await this future. To retrieve the
                # exception here keeps asyncio from logging that it was never retrieved.
                future.exception()

    def fail_all(self, error: Exception) -> None:
        self.fail(self._waiting, error)
