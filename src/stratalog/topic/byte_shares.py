"""The shares of the partitions of a fetch in its byte budget. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Wish(NamedTuple):
    """The bytes that one partition could answer with."""

    first_bytes: int
    """The first row. 0 if there is nothing to answer."""
    all_bytes: int
    """All rows that were asked for."""


def fair_shares(wishes: Sequence[Wish], total_bytes: int) -> list[int]:
    """Divide `total_bytes` among partitions.

    In the order of the request, each partition gets its first row for as long as there is room. The
    first partition always gets it: otherwise a reader with a small budget would never move on.
    (Clients rotate the order.) The rest is divided evenly among the partitions that got their first
    row, and no partition gets more than it has.
    """
    shares = [0] * len(wishes)
    rest = total_bytes
    for place, wish in enumerate(wishes):
        if wish.first_bytes and (wish.first_bytes <= rest or rest == total_bytes):
            shares[place] = wish.first_bytes
            rest -= wish.first_bytes
    hungry = sorted(
        (wishes[place].all_bytes - share, place) for place, share in enumerate(shares) if share
    )
    for served, (appetite, place) in enumerate(hungry):
        more = max(0, min(appetite, rest // (len(hungry) - served)))
        shares[place] += more
        rest -= more
    return shares
