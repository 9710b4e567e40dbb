"""The identity in whose name a request is made."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Kind and name, as Kafka writes them: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Every client of a listener that does not authenticate, by Kafka's name."""
