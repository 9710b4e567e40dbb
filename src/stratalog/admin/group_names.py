"""The names that a group may have."""

from stratalog.groups.errors import InvalidGroupIdError


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Kafka accepts the empty name, for the sake of old clients, where no members are concerned."""
    if not group_id and not may_be_empty:
        raise InvalidGroupIdError("a group needs a name: set group.id")
    if "\0" in group_id:
        raise InvalidGroupIdError("the name of a group cannot contain a NUL character")
