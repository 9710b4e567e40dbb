"""The state of a client's connection that its requests share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stratalog.admin.principal import ANONYMOUS, Principal


@dataclass(slots=True, kw_only=True)
class Session:
    """One per connection. Handlers of authentication and of ApiVersions change it, in the order
    of the requests."""

    number: int
    """Counts the connections of this broker."""
    listener: str
    """The address that the client connected to."""
    client_host: str
    """The client's address, as Kafka shows it to administrators: with a leading slash."""
    principal: Principal = ANONYMOUS
    software: str = "unknown software"
    """The name and version of the client's library, from ApiVersions."""
    at_end: dict[Callable[["Session"], None], None] = field(default_factory=dict)
    """Called when the connection has ended, each once, to free its state elsewhere."""
    logged_groups: set[str] = field(default_factory=set)
    """Groups for which this client commits offsets without being a member, as the log has it."""

    def end(self) -> None:
        for free in self.at_end:
            free(self)

    def __str__(self) -> str:
        return f"connection {self.number} ({self.software} at {self.client_host.lstrip('/')})"
