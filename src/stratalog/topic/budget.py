"""How many bytes each partition of a fetch may answer with. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Wish(NamedTuple):
    """What one partition has to give: its first row, and all that was asked for."""

    first_bytes: int
    all_bytes: int


def fair_shares(wishes: Sequence[Wish], total_bytes: int) -> list[int]:
    """Divide `total_bytes` among partitions.

    In the order of the request, everybody gets its first row for as long as there is room, and
    the first one in any case: else a reader with a small budget never moves on. (Clients rotate
    that order.) What is left is divided evenly among those, except that nobody gets more than it
    has.
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
