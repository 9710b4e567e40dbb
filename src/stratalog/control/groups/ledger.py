"""The ledger of consumer groups."""

from stratalog.control.groups.configs import GroupConfigOperations
from stratalog.control.groups.coordination import GroupOperations
from stratalog.control.groups.offsets import GroupOffsetOperations


class GroupsLedger(GroupOperations, GroupOffsetOperations, GroupConfigOperations):
    """A group has one coordinator: a live broker, with a term that fences every later write of its
    predecessors."""
