"""The base class of handlers: the declaration of an API, reading and refusing its requests."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from kio.schema.errors import ErrorCode

from stratalog.admin.principal import Principal
from stratalog.admin.rights import Right
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.work import Work
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.primitives import Buffer
from stratalog.kafka.wire.refusals import can_refuse_unread, refusal
from stratalog.kafka.wire.schema_reader import Reader, compiled_reader
from stratalog.kafka.wire.schema_writer import write_response

Body: TypeAlias = Sequence[Buffer]
"""A response without its header."""


class Pending(NamedTuple):
    """An accepted request that waits for its answer."""

    done: "asyncio.Future[Any]"
    """Done when the answer can be made. Requests that wait for the same may share it."""
    answer: Callable[[], Body | None]
    """Makes the answer. Called once, when `done` is. None: the client expects no response."""


RequestBody = TypeVar("RequestBody")


class Request(NamedTuple):
    """A request without its body."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    session: Session
    work: Work

    @property
    def principal(self) -> Principal:
        """The principal of the session, with the client for the log."""
        return self.session.principal.through(f"client {self.client_id!r} on {self.session}")


class Handler(ABC, Generic[RequestBody]):
    """Subclasses in `kafka/handlers/` are found by the registry. Each declares these:"""

    key: ClassVar[ApiKey]
    versions: ClassVar[Versions]
    rights: ClassVar[Sequence[Right]]
    """Every right that a request may need, depending on its body. The operations of `admin/` ask
    for theirs, and tests compare. Rights of the APIs that move records and offsets are declared
    and not asked for, as long as there is no authorizer that could refuse."""
    body: type[RequestBody]
    """The tuple that requests are read into; see `schema_reader`."""
    in_turn: ClassVar[bool] = True
    """Read and begin a request only when all earlier responses of its connection are written. A
    client that sends many requests and reads no response costs the memory of one. Not for APIs that
    clients pipeline, or whose requests must reach a group while an earlier one waits."""
    max_entries: ClassVar[int | None] = None
    """The most entries of one request, if that is less than `broker.max_request_entries`."""
    in_every_worker: ClassVar[bool] = False
    """True if every worker of a broker serves the API. Such a handler is made from the parts that
    all workers have. Requests of other APIs are relayed to the first worker."""
    waits: ClassVar[bool] = False
    """True if requests wait for other clients, so that a heavy one leaves the lane meanwhile."""
    keeps_lane: ClassVar[bool] = False
    """True if the handler itself leaves the lane while it waits."""

    def __init__(self, components: DataComponents) -> None:  # noqa: ARG002
        self._readers: dict[int, Reader[RequestBody]] = {}

    def read(
        self, version: int, frame: memoryview, position: int, max_entries: int
    ) -> tuple[RequestBody, int]:
        """Read a request, and return it with the number of its entries."""
        reader = self._readers.get(version)
        if reader is None:
            reader = self._readers[version] = compiled_reader(self.body, self.key, version)
        return reader(frame, position, max_entries), reader.entries

    def is_heavy(self, body: RequestBody) -> bool:  # noqa: ARG002
        """Tell whether a request of few entries asks for much work or a large answer.

        Requests that an administrator sends and that write to the control plane are heavy, so that
        the commits of producers never wait for more than one of them.
        """
        return False

    @abstractmethod
    async def handle(self, request: Request, body: RequestBody) -> Body: ...

    def refuse(self, request: Request, body: RequestBody, error: Exception) -> Body:
        """The response to a request that failed as a whole."""
        code = self.error_code(error)
        values = refusal(self.key, request.version, body, code, message_of(error))
        return write_response(self.key, request.version, values)

    def refuse_unread(self, request: Request, error: Exception) -> Body:
        """The response to a request that has too many entries to read them all.

        Raises the error if the response has no room for an error but in its entries.
        """
        if not can_refuse_unread(self.key, request.version):
            raise error
        values = refusal(self.key, request.version, None, self.error_code(error), message_of(error))
        return write_response(self.key, request.version, values)

    def error_code(self, error: Exception) -> ErrorCode:
        return code_of(error)


class TwoStageHandler(Handler[RequestBody]):
    """Requests are accepted in the order of the connection, and answered later."""

    in_turn = False
    waits = True
    keeps_lane = True

    @abstractmethod
    def accept(self, request: Request, body: RequestBody) -> Pending | Coroutine[Any, Any, Pending]:
        """Enter the request into its order; return a coroutine if that has to wait. Errors are part
        of the answer."""

    async def handle(self, request: Request, body: RequestBody) -> Body:
        accepted = self.accept(request, body)
        pending = accepted if isinstance(accepted, Pending) else await accepted
        await asyncio.wait([pending.done])
        return pending.answer() or []
