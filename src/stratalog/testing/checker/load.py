"""What the clients of a run do, in numbers."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    bootstrap: str
    topic: str
    partitions: int
    seed: int
    sends_per_second: float
    """Of each producer."""
    patience_s: float
    """How long a client tries before it gives a message up."""

    def random(self, client: str) -> Random:
        """A source of chance for each client, so that none depends on the others' timing."""
        return Random(f"{self.seed} {client}")


POLL_RECORDS = 500
POLL_SECONDS = 0.2
MOVE_CHANCE = 0.03
"""Per poll: consumers that are put somewhere else now and then read old data as well as new."""
