"""The interface between a connection and the code that handles its requests."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from stratalog.kafka.server.session import Session
from stratalog.kafka.wire.primitives import Buffer

Release: TypeAlias = Callable[[], None]
"""Called when the client has taken the response, or has gone: gives the request's memory back."""
Response: TypeAlias = Sequence[Buffer] | None
"""The whole response with its length in front, ready to be written. None: no response is sent."""


def _nothing_held() -> None:
    return None


class Running(NamedTuple):
    """A request that is being worked on."""

    done: "asyncio.Future[Any]"
    """Done when the response can be made. Requests that wait for the same may share it."""
    respond: Callable[[], Response]
    """Makes the response. Called once, when `done` is."""
    outlives_client: bool
    """True for a request that writes: it is finished even if the client has gone."""
    release: Release = _nothing_held


class InTurn(NamedTuple):
    """A request whose work begins when all earlier responses of its connection are written.

    So a client that sends many requests and reads no response costs the memory of one. `begin`
    raises a `CallError` if the request cannot be read. Then the connection is closed.
    """

    begin: Callable[[], Coroutine[Any, Any, Response]]
    release: Release = _nothing_held


class Entering(NamedTuple):
    """A request that waits, for memory or for the control plane, before it is worked on."""

    entered: Coroutine[Any, Any, Running | InTurn]
    """The next request of the connection is accepted when this has returned."""


Accepted: TypeAlias = Running | InTurn | Entering


class Acceptor(Protocol):
    def accept(self, frame: bytearray, session: Session) -> Accepted:
        """Accept a request. The next request of the connection is accepted afterwards, so that work
        which must keep the order of the requests is done here.

        Raises a `CallError` if the frame is not a request that is served. Then the connection is
        closed, after the earlier requests have been answered.
        """
