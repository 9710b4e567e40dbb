"""The identity in whose name a request is made."""

from dataclasses import dataclass, field, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Principal:
    """Kind and name, as Kafka writes them: `User:alice`."""

    kind: str
    name: str
    client: str = field(default="", compare=False)
    """The program that speaks for the principal and its address, for the log. It gives no right."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def through(self, client: str) -> Self:
        return replace(self, client=client)

    @property
    def with_client(self) -> str:
        return f"{self}, {self.client}" if self.client else str(self)


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Every client of a listener that does not authenticate, by Kafka's name."""
