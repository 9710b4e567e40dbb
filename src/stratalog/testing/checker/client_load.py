"""The load of a run: how often its clients send, read and move."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    bootstrap: str
    topic: str
    partitions: int
    seed: int
    sends_per_second: float
    """The rate of each producer."""
    patience_s: float
    """How long a client tries before it gives a message up."""

    def random(self, client: str) -> Random:
        """Make a random source of its own for a client, independent of the others' timing."""
        return Random(f"{self.seed} {client}")


POLL_RECORDS = 500
POLL_SECONDS = 0.2
MOVE_CHANCE = 0.03
"""The chance per poll that a consumer moves to another offset. So it reads old data as well as
new."""
