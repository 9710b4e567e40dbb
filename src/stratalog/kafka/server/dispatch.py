"""From the bytes of a request to the bytes of its response, through the handler of its API."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.clock import Clock
from stratalog.errors import CallError, DamagedError
from stratalog.kafka.server.acceptor import Accepted, Entering, InTurn, Response, Running
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Pending, Request, TwoStageHandler
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.work import LIGHT_ENTRIES, Work, Workplace
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.errors import TooManyEntriesError
from stratalog.kafka.wire.header import parse_header
from stratalog.kafka.wire.primitives import NO_TAGS

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

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        view = memoryview(frame)
        key, version, correlation_id, client_id, body_start = parse_header(view, self._versions)
        work = Work(self._workplace)
        request = Request(key, version, correlation_id, client_id, session, work)
        unread = _Unread(self._handlers[key], view, body_start)
        if unread.handler.in_turn:
            answer = partial(self._in_turn, request, unread)
            return InTurn(partial(self._answered, request, answer), work.release)
        try:
            body = _read_at_once(request, unread)
            if body is None:
                return Entering(self._enter(request, unread))
            begun = self._begin(request, unread.handler, body)
        except BaseException:
            work.release()
            raise
        return begun if isinstance(begun, Running) else Entering(begun)

    async def _enter(self, request: Request, unread: "_Unread") -> Running:
        """Read and begin a request that has to wait for its memory, or for its turn in the lane."""
        try:
            body = await self._read(request, unread)
            begun = self._begin(request, unread.handler, body)
            running = begun if isinstance(begun, Running) else await begun
            await request.work.end_turn()
        except BaseException:
            request.work.release()
            raise
        return running

    def _begin(
        self, request: Request, handler: Handler[Any], body: Any
    ) -> Running | Coroutine[Any, Any, Running]:
        """Begin a request; return a coroutine if it has to wait before the next one may begin."""
        if not isinstance(handler, TwoStageHandler):
            answer = partial(_answer, handler, request, body)
            return self._as_task(request, answer, outlives_client=False)
        pending = handler.accept(request, body)
        if isinstance(pending, Pending):
            return self._running(request, pending)
        return self._begin_later(request, pending)

    async def _begin_later(
        self, request: Request, pending: Coroutine[Any, Any, Pending]
    ) -> Running:
        try:
            return self._running(request, await pending)
        except BaseException:
            request.work.release()
            raise

    def _running(self, request: Request, pending: Pending) -> Running:
        if request.work.is_heavy:
            answer = partial(_answer_in_lane, request, pending)
            return self._as_task(request, answer, outlives_client=True)
        respond = partial(self._respond, request, pending, self._clock.monotonic())
        return Running(pending.done, respond, True, request.work.release)

    def _as_task(
        self,
        request: Request,
        answer: Callable[[], Awaitable[Body | None]],
        *,
        outlives_client: bool,
    ) -> Running:
        task = asyncio.get_running_loop().create_task(self._answered(request, answer))
        return Running(task, task.result, outlives_client, request.work.release)

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

    async def _answered(
        self, request: Request, answer: Callable[[], Awaitable[Body | None]]
    ) -> Response:
        """Begin and time the answer. A request that is cancelled before leaves nothing behind."""
        started_s = self._clock.monotonic()
        try:
            body = await answer()
        finally:
            await request.work.end_turn()
        return self._response(request, body, started_s)

    def _respond(self, request: Request, pending: Pending, started_s: float) -> Response:
        return self._response(request, pending.answer(), started_s)

    def _response(self, request: Request, body: Body | None, started_s: float) -> Response:
        """Frame the response. That of ApiVersions always has the oldest header: the client may know
        no other yet."""
        self._metrics.answered(request.key, self._clock.monotonic() - started_s)
        if body is None:
            return None
        size = sum(map(len, body))
        flexible = request.version >= self._versions[request.key].first_flexible
        if flexible and request.key is not ApiKey.API_VERSIONS:
            head = _HEAD.pack(size + _HEAD.size - _SIZE_BYTES + 1, request.correlation_id) + NO_TAGS
        else:
            head = _HEAD.pack(size + _HEAD.size - _SIZE_BYTES, request.correlation_id)
        return [head, *body]


_HEAD = struct.Struct(">ii")
_SIZE_BYTES = 4


class _Unread(NamedTuple):
    """A request whose body is still bytes."""

    handler: Handler[Any]
    frame: memoryview
    body_start: int


def _read_at_once(request: Request, unread: _Unread) -> Any:
    """Read the body of a light request. None if it is heavy, or if its memory is waited for."""
    handler, view, body_start = unread
    try:
        body, entries = handler.read(request.version, view, body_start, LIGHT_ENTRIES)
    except TooManyEntriesError:
        return None
    if handler.is_heavy(body) or not request.work.parse_at_once(entries):
        return None
    return body


async def _answer_in_lane(request: Request, pending: Pending) -> Body | None:
    """Answer a heavy request, which left the lane while it waited."""
    await asyncio.wait([pending.done])
    await request.work.resume_turn()
    return pending.answer()


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
