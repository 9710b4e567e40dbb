"""One group in the memory of its coordinator."""

import asyncio
from collections.abc import Iterable
from itertools import count

from stratalog.control.groups.model import GroupRecord
from stratalog.groups.group import Answer, Group


class HeldGroup:
    def __init__(self, record: GroupRecord, group: Group, *, lease_number: int) -> None:
        self.group_id = record.group_id
        self.term = record.term
        self.group = group
        self.lease_number = lease_number
        """The broker's lease when it was loaded. It is good for no other."""
        self.was_saved = bool(record.state)
        self.saved_revision = group.revision
        self.saving = asyncio.Lock()
        """Held while the group is being saved, so that saves cannot overtake each other."""
        self.is_dropped = False
        self.timer: asyncio.Task[None] | None = None
        self.wakes_s = 0.0
        """When the timer goes off."""
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}

    @property
    def is_saved(self) -> bool:
        return self.group.revision == self.saved_revision

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if it is forgotten here and loaded again."""
        return (
            self.group.is_empty and self.is_saved and not self._waiting and not self.saving.locked()
        )

    def replace(self, group: Group) -> None:
        """Make it a group of another kind, which is a change to be saved."""
        self.group = group
        self.saved_revision = group.revision - 1

    def ticket(self) -> tuple[int, "asyncio.Future[object]"]:
        """A ticket for a request, and where its answer will be."""
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
                # Whoever asked may have been told already, and never look here.
                future.exception()

    def fail_all(self, error: Exception) -> None:
        self.fail(self._waiting, error)
