"""One client's connection: requests come in, responses go out in the same order.

Bytes are received straight into the buffer of their request. Requests are accepted one after the
other and then worked on side by side. Reading stops while there is no memory for the next request,
while too many are unanswered, or while the client does not take its responses. A request that has
arrived whole is accepted even if the client has gone: producers with acks=0 leave that way.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, cast

from stratalog.clock import Clock
from stratalog.errors import CallError
from stratalog.kafka.server.acceptor import Accepted, Acceptor, Response, Running
from stratalog.kafka.server.budget import ByteBudget, Grant, Share
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.unsent import Unsent
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.errors import FrameSizeError
from stratalog.kafka.wire.frames import FrameReceiver, Progress

log = logging.getLogger(__name__)

_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A client that is gone without a word is noticed after 60 + 4 * 15 s. The system's own default is
two hours."""
_STEP_BYTES = 64 << 10
"""A request gets room and is charged for it in steps, so that six bytes which state a large request
take no memory from anybody. Each step is as long as all that has arrived, so that a large request
takes few of them and never more than twice its arrived bytes."""


class _Hold(Enum):
    """A reason to stop reading from the socket."""

    BUDGET = "no memory for the next request"
    UNANSWERED = "too many requests are unanswered"
    CLOSING = "no more requests are taken"


class _Arrival(NamedTuple):
    frame: bytearray
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_request_bytes: int
    max_control_request_bytes: int
    max_pipelined_requests: int


class Budgets(NamedTuple):
    """The memory for requests as they arrive. Requests that carry no records have their own, so
    that groups and readers are served while the store keeps producers waiting."""

    produce: ByteBudget
    control: ByteBudget

    @property
    def is_short(self) -> bool:
        return self.produce.is_short or self.control.is_short


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        *,
        number: int,
        listener: str,
        acceptor: Acceptor,
        budgets: Budgets,
        limits: ConnectionLimits,
        clock: Clock,
        on_opened: Callable[["Connection"], None],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._number = number
        self._listener = listener
        self._acceptor = acceptor
        self._budgets = budgets
        self._shares = (Share(), Share())
        self._max_control_bytes = limits.max_control_request_bytes
        self._max_unanswered = limits.max_pipelined_requests
        self._clock = clock
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._frames = FrameReceiver(limits.max_request_bytes)
        self._grant: Grant | None = None
        self._holds: set[_Hold] = set()
        self._unanswered = 0
        self._arrivals: asyncio.Queue[_Arrival | None] = asyncio.Queue()
        self._accepted: asyncio.Queue[tuple[Accepted, Grant] | None] = asyncio.Queue()
        self._answering: asyncio.Future[Response] | None = None
        self._answering_outlives = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._moved_s = clock.monotonic()
        self._answered_s = self._moved_s
        self._began_s = self._moved_s
        self._held_since_s = self._moved_s
        self._unsent = Unsent()
        self.peer = "?"

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        host = str(peername[0]) if isinstance(peername, tuple) else ""
        self.peer = f"{host}:{peername[1]}" if host else str(peername)
        self._session = Session(
            number=self._number, listener=self._listener, client_host=f"/{host}"
        )
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _keep_alive(sock)
        self._work = asyncio.gather(self._accept_all(), self._answer_all(), self._lost.wait())
        self._work.add_done_callback(self._finished)
        self._on_opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._moved_s = self._clock.monotonic()
        if self._frames.is_idle:
            self._began_s = self._moved_s
        try:
            progress = self._frames.received(nbytes)
            if progress is Progress.HEAD or progress is Progress.STEP:
                self._ask_for_admission()
        except FrameSizeError as error:
            log.info("Closing the connection of %s: %s", self.peer, error)
            self.close()
            return
        if progress is Progress.WHOLE:
            self._arrived()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._unsent.begin(self._clock.monotonic(), self._transport.get_write_buffer_size())
        self._writable.clear()

    def resume_writing(self) -> None:
        self._answered_s = self._clock.monotonic()
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._lost.set()
        self._writable.set()
        self.close()
        # A connection is in cycles of references, which are collected late.
        self._frames.forget()
        if self._grant is not None:
            self._grant.release()
        if self._answering is not None and not self._answering_outlives:
            self._answering.cancel()

    # Called by the server.

    def close(self) -> None:
        """Take no more requests, answer the received ones, then close."""
        if _Hold.CLOSING not in self._holds:
            self._hold(_Hold.CLOSING)
            self._arrivals.put_nowait(None)

    def abort(self) -> None:
        """Close now. Accepted requests that outlive their client go on."""
        self._transport.abort()

    def kill(self) -> None:
        """Close now and wait for nothing."""
        self.abort()
        self._work.cancel()

    @property
    def closed(self) -> "asyncio.Future[Any]":
        """Done when the socket is closed and no request is being worked on."""
        return self._work

    def is_late(self, *, stall_s: float, least_bytes_per_s: float) -> bool:
        """Tell whether a half received request has stalled or is slower than the least rate.

        A byte now and then keeps a request from stalling, so the whole request has a deadline, too.
        The time in which this broker does not read is not held against the client.
        """
        if self._frames.is_idle or self._holds:
            return False
        now = self._clock.monotonic()
        deadline_s = stall_s + self._frames.size_bytes / least_bytes_per_s
        return now - self._moved_s > stall_s or now - self._began_s > deadline_s

    def is_slow(self, *, stall_s: float, least_bytes_per_s: float) -> bool:
        """Tell whether the client takes its response more slowly than the least rate."""
        if self._writable.is_set():
            return False
        self._unsent.note(self._clock.monotonic(), self._transport.get_write_buffer_size())
        return self._unsent.is_late(stall_s, least_bytes_per_s)

    def is_idle(self, idle_s: float) -> bool:
        """Tell whether nothing has moved for this long, and no request is being worked on.

        A client that takes no response counts as idle, although its requests are unanswered.
        """
        works = self._unanswered > 0 and self._writable.is_set()
        if works or _Hold.BUDGET in self._holds:
            return False
        return self._clock.monotonic() - max(self._moved_s, self._answered_s) > idle_s

    # Reading.

    def _ask_for_admission(self) -> None:
        size, step = self._frames.size_bytes, self._next_step
        if self._grant is None:
            is_control = self._frames.api_key != ApiKey.PRODUCE
            if is_control and size > self._max_control_bytes:
                raise FrameSizeError(
                    f"a request of {size} bytes that is not a Produce: "
                    f"the most is {self._max_control_bytes}"
                )
            self._grant = self._budgets[is_control].request(
                step, self._granted, share=self._shares[is_control], is_small=size <= _STEP_BYTES
            )
        else:
            self._grant.claim(step)
        if self._grant.held:
            self._frames.admit(step)
        else:
            self._held_since_s = self._clock.monotonic()
            self._hold(_Hold.BUDGET)

    @property
    def _next_step(self) -> int:
        step = max(_STEP_BYTES, self._frames.admitted_bytes)
        return min(step, self._frames.size_bytes - self._frames.admitted_bytes)

    def _granted(self) -> None:
        self._frames.admit(self._next_step)
        self._moved_s = self._clock.monotonic()
        self._began_s += self._moved_s - self._held_since_s
        self._let_go(_Hold.BUDGET)

    def _arrived(self) -> None:
        assert self._grant is not None
        self._grant.arrived()
        arrival = _Arrival(self._frames.take(), self._grant)
        self._grant = None
        self._unanswered += 1
        if self._unanswered >= self._max_unanswered:
            self._hold(_Hold.UNANSWERED)
        self._arrivals.put_nowait(arrival)

    def _hold(self, reason: _Hold) -> None:
        if not self._holds:
            self._transport.pause_reading()
        self._holds.add(reason)

    def _let_go(self, reason: _Hold) -> None:
        self._holds.discard(reason)
        if not self._holds:
            self._transport.resume_reading()

    # Working.

    # One request is one call, so that no variable keeps its memory while the next is waited for.

    async def _accept_all(self) -> None:
        try:
            while await self._accept_next():
                pass
        except CallError as error:
            log.info("Closing the connection of %s: %s", self.peer, error)
        except Exception:
            log.exception("Closing the connection of %s: a request was not accepted", self.peer)
        finally:
            self.close()
            self._forget_arrivals()
            self._accepted.put_nowait(None)

    async def _accept_next(self) -> bool:
        arrival = await self._arrivals.get()
        if arrival is None:
            return False
        try:
            accepted = await self._acceptor.accept(arrival.frame, self._session)
        except BaseException:
            arrival.grant.release()
            raise
        if isinstance(accepted, Running):
            _release_when_done(accepted.response, arrival.grant)
        self._accepted.put_nowait((accepted, arrival.grant))
        return True

    def _forget_arrivals(self) -> None:
        """Release the memory of the requests behind one that was not accepted."""
        while not self._arrivals.empty():
            arrival = self._arrivals.get_nowait()
            if arrival is not None:
                arrival.grant.release()

    async def _answer_all(self) -> None:
        while await self._answer_next():
            self._answered()
        self._transport.close()

    async def _answer_next(self) -> bool:
        item = await self._accepted.get()
        if item is None:
            return False
        accepted, grant = item
        try:
            response = await self._response(accepted)
            if response is not None and not self._lost.is_set():
                self._transport.writelines(response)
            await self._writable.wait()
        finally:
            grant.release()
            accepted.release()
        return True

    async def _response(self, accepted: Accepted) -> Response:
        """Wait for the response. None if the client has gone."""
        if isinstance(accepted, Running):
            future, outlives = accepted.response, accepted.outlives_client
        else:
            future, outlives = asyncio.ensure_future(accepted.begin()), False
        self._answering, self._answering_outlives = future, outlives
        if self._lost.is_set() and not outlives:
            future.cancel()
        try:
            return await future
        except asyncio.CancelledError:
            if not (future.cancelled() and self._lost.is_set()):
                raise
        except CallError as error:
            log.info("Closing the connection of %s: %s", self.peer, error)
            self._lost.set()
            self._transport.close()
        except Exception:
            log.exception("Closing the connection of %s: a request has no answer", self.peer)
            self.abort()
        finally:
            self._answering = None
        return None

    def _answered(self) -> None:
        self._unanswered -= 1
        self._answered_s = self._clock.monotonic()
        if _Hold.UNANSWERED in self._holds and self._unanswered < self._max_unanswered:
            self._let_go(_Hold.UNANSWERED)

    def _finished(self, work: "asyncio.Future[Any]") -> None:
        error = None if work.cancelled() else work.exception()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("The connection of %s failed", self.peer, exc_info=error)
            self.abort()
        self._on_closed(self)


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _release_when_done(response: asyncio.Future[Response], grant: Grant) -> None:
    response.add_done_callback(lambda _: grant.release())
