"""From the bytes of a request to the bytes of its response, through the handler of its API."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.clock import Clock
from stratalog.errors import CallError, DamagedError
from stratalog.kafka.server.acceptor import Accepted, InTurn, Response, Running
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Answer, Body, Handler, Request, TwoStageHandler
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.work import LIGHT_ENTRIES, Work, Workplace
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.errors import TooManyEntriesError
from stratalog.kafka.wire.header import parse_header
from stratalog.kafka.wire.primitives import INT32, NO_TAGS

log = logging.getLogger(__name__)


class Dispatcher:
    """Implements `Acceptor`."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler[Any]],
        *,
        clock: Clock,
        metrics: RequestMetrics,
        workplace: Workplace,
    ) -> None:
        self._handlers = handlers
        self._workplace = workplace
        self._versions = {key: handler.versions for key, handler in handlers.items()}
        self._clock = clock
        self._metrics = metrics

    async def accept(self, frame: bytearray, session: Session) -> Accepted:
        view = memoryview(frame)
        key, version, correlation_id, client_id, body_start = parse_header(view, self._versions)
        work = Work(self._workplace)
        request = Request(key, version, correlation_id, client_id, session, work)
        handler = self._handlers[key]
        if handler.in_turn:
            unread = _Unread(handler, view, body_start)
            return InTurn(
                lambda: self._timed(request, lambda: self._in_turn(request, unread)), work.release
            )
        try:
            body = await self._read(request, _Unread(handler, view, body_start))
            if isinstance(handler, TwoStageHandler):
                answer = await handler.accept(request, body)
                await work.end_turn()
            else:
                answer = partial(_answer, handler, request, body)
        except BaseException:
            work.release()
            raise
        outlives_client = isinstance(handler, TwoStageHandler)
        begun = self._begun(request, answer)
        return Running(begun, outlives_client=outlives_client, release=work.release)

    async def _in_turn(self, request: Request, unread: "_Unread") -> Body:
        handler = unread.handler
        try:
            body = await self._read(request, unread)
        except TooManyEntriesError as error:
            return handler.refuse_unread(request, error)
        answer = await _answer(handler, request, body)
        request.work.holds(sum(map(len, answer)))
        return answer

    async def _read(self, request: Request, unread: "_Unread") -> Any:
        """Read the body. A heavy request is in the lane then, unless it waits for other clients."""
        handler, view, body_start = unread
        work = request.work
        try:
            body, entries = handler.read(request.version, view, body_start, LIGHT_ENTRIES)
        except TooManyEntriesError:
            return await self._read_heavy(request, unread)
        if not work.parse_at_once(entries):
            await work.parse(entries)
        if handler.is_heavy(body):
            await work.begin_turn()
        return body

    async def _read_heavy(self, request: Request, unread: "_Unread") -> Any:
        handler, view, body_start = unread
        work, most = request.work, self._workplace.max_entries
        if handler.max_entries is not None:
            most = min(most, handler.max_entries)
        await work.parse(min(most, len(view)))
        await (work.enter_lane() if handler.waits else work.begin_turn())
        body, entries = handler.read(request.version, view, body_start, most)
        work.parsed(entries)
        if handler.waits and not handler.keeps_lane:
            await work.end_turn()
        return body

    def _begun(self, request: Request, answer: Answer) -> asyncio.Task[Response]:
        return asyncio.get_running_loop().create_task(self._timed(request, answer))

    async def _timed(self, request: Request, answer: Answer) -> Response:
        """Begin and time the answer. A request that is cancelled before leaves nothing behind."""
        started = self._clock.monotonic()
        try:
            body = await answer()
        finally:
            await request.work.end_turn()
        self._metrics.answered(request.key, self._clock.monotonic() - started)
        return None if body is None else self._framed(request, body)

    def _framed(self, request: Request, body: Body) -> Response:
        """ApiVersions responses always have the oldest header: the client may know no other yet."""
        head = INT32.pack(request.correlation_id)
        flexible = request.version >= self._versions[request.key].first_flexible
        if flexible and request.key is not ApiKey.API_VERSIONS:
            head += NO_TAGS
        size = len(head) + sum(len(part) for part in body)
        return [INT32.pack(size) + head, *body]


class _Unread(NamedTuple):
    """A request whose body is still bytes."""

    handler: Handler[Any]
    frame: memoryview
    body_start: int


async def _answer(handler: Handler[Any], request: Request, body: Any) -> Body:
    try:
        return await handler.handle(request, body)
    except Exception as error:
        if code_of(error) is ErrorCode.unknown_server_error:
            log.exception(
                "%s of client %r on %s failed", request.key.name, request.client_id, request.session
            )
        else:
            # Clients meet the others in normal work: a group that moves, a broker that starts.
            level = logging.INFO if isinstance(error, CallError | DamagedError) else logging.DEBUG
            log.log(
                level,
                "%s of client %r on %s was refused: %s",
                request.key.name,
                request.client_id,
                request.session,
                error,
            )
        return handler.refuse(request, body, error)
