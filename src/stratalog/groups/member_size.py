"""The bound of the bytes that a group keeps for each of its members."""

from stratalog.groups.errors import MemberTooLargeError


def check_member_size(group_id: str, size_bytes: int, *, most: int) -> None:
    if size_bytes > most:
        raise MemberTooLargeError(
            f"a member of group {group_id!r} sends {size_bytes} bytes: the most is {most}"
            " (groups.max_member_bytes)"
        )
