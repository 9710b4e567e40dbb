"""From the bytes of a request to the bytes of its response, through the handler of its API."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from stratalog.clock import Clock
from stratalog.kafka.acceptor import Accepted, InTurn, Response, Running
from stratalog.kafka.api import ApiKey, is_flexible
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body, Handler
from stratalog.kafka.metrics import RequestMetrics
from stratalog.kafka.request import Request, parse_request
from stratalog.kafka.schema_reader import read_request
from stratalog.kafka.wire import INT32, NO_TAGS

log = logging.getLogger(__name__)


Answer: TypeAlias = Callable[[], Awaitable[Body | None]]
"""Called once, to wait for what is to be answered. None: nothing is."""


class TwoStageHandler(Protocol):
    """Produce: accepted in order, answered later."""

    async def accept(self, request: Request) -> Answer:
        """Enter the records into the order of appends. Errors are part of the answer."""


class Dispatcher:
    """Implements `Acceptor`."""

    def __init__(
        self,
        *,
        produce: TwoStageHandler,
        handlers: Mapping[ApiKey, Handler],
        clock: Clock,
        metrics: RequestMetrics,
    ) -> None:
        self._produce = produce
        self._handlers = handlers
        self._clock = clock
        self._metrics = metrics

    async def accept(self, frame: bytearray) -> Accepted:
        request = parse_request(frame)
        if request.key is ApiKey.PRODUCE:
            answer = await self._produce.accept(request)
            return Running(self._begun(request, answer), outlives_client=True)
        body = None
        if request.body_start:
            body = read_request(request.key, request.version, request.frame, request.body_start)
        if request.key is ApiKey.FETCH:
            return InTurn(lambda: self._timed(request, lambda: self._answer(request, body)))
        begun = self._begun(request, lambda: self._answer(request, body))
        return Running(begun, outlives_client=False)

    def _begun(self, request: Request, answer: Answer) -> asyncio.Task[Response]:
        return asyncio.get_running_loop().create_task(self._timed(request, answer))

    async def _timed(self, request: Request, answer: Answer) -> Response:
        """The answer is begun in here: a request that is cancelled first leaves nothing behind."""
        started = self._clock.monotonic()
        body = await answer()
        self._metrics.answered(request.key, self._clock.monotonic() - started)
        return None if body is None else _framed(request, body)

    async def _answer(self, request: Request, body: Any) -> Body:
        handler = self._handlers[request.key]
        try:
            return await handler.handle(request, body)
        except Exception as error:
            if code_of(error) is ErrorCode.unknown_server_error:
                log.exception("%s of client %r failed", request.key.name, request.client_id)
            return handler.refuse(request, body, error)


def _framed(request: Request, body: Body) -> Response:
    """ApiVersions responses have the oldest header always: the client may know no other yet."""
    head = INT32.pack(request.correlation_id)
    if request.key is not ApiKey.API_VERSIONS and is_flexible(request.key, request.version):
        head += NO_TAGS
    size = len(head) + sum(len(part) for part in body)
    return [INT32.pack(size) + head, *body]
