"""What a connection asks of those who understand its requests."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from stratalog.kafka.server.session import Session
from stratalog.kafka.wire.primitives import Buffer

Response: TypeAlias = Sequence[Buffer] | None
"""The whole response with its length in front, to be written as it is. None: not answered."""


@dataclass(frozen=True, slots=True)
class Running:
    """A request that is being worked on."""

    response: asyncio.Future[Response]
    outlives_client: bool
    """Whether it is finished even if the client has gone, as everything that was written is."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """A request whose work begins when all earlier responses of its connection are written.

    For those with large responses: a client that sends many and reads none is to cost the memory
    of one.
    """

    begin: Callable[[], Coroutine[Any, Any, Response]]


Accepted: TypeAlias = Running | InTurn


class Acceptor(Protocol):
    async def accept(self, frame: bytearray, session: Session) -> Accepted:
        """Take a request in. The next one of the connection is not accepted before this returns,
        so whatever must keep the order of the requests happens here.

        Raises a `CallError` if the frame is not a request that is served: the connection is
        closed then, when the earlier requests have been answered.
        """
