"""One client's connection: requests come in, responses go out in the same order.

Requests are accepted one after the
other and then worked on side by side. Reading stops while there is no memory for the next request,
while too many are unanswered, or while the client does not take its responses. A request that has
arrived whole is accepted even if the client has gone: producers with acks=0 leave that way.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple, cast

from stratalog.clock import Clock
from stratalog.errors import CallError
from stratalog.kafka.server.acceptor import Acceptor, Entering, InTurn, Running
from stratalog.kafka.server.answer_queue import AnswerQueue
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
        shared: memoryview,
        clock: Clock,
        on_opened: Callable[["Connection"], None],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        """`shared` is the `shared_buffer` of the event loop."""
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
        self._frames = FrameReceiver(limits.max_request_bytes, shared)
        self._grant: Grant | None = None
        self._holds: set[_Hold] = set()
        self._unanswered = 0
        self._arrivals: deque[_Arrival] = deque()
        self._entering: asyncio.Task[Running | InTurn] | None = None
        self._is_lost = False
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
        if sock is not None and sock.family != socket.AF_UNIX:
            _keep_alive(sock)
        self._answers = AnswerQueue(self._transport, peer=self.peer, on_taken=self._taken)
        self._closed = asyncio.get_running_loop().create_future()
        self._on_opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._moved_s = self._clock.monotonic()
        if self._frames.is_idle:
            self._began_s = self._moved_s
        self._frames.received(nbytes)
        self._take_requests()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._unsent.begin(self._clock.monotonic(), self._transport.get_write_buffer_size())
        self._answers.pause()

    def resume_writing(self) -> None:
        self._answers.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._is_lost = True
        # Its transport may keep the connection for a while.
        self._frames.forget()
        if self._grant is not None:
            self._grant.release()
            self._grant = None
        self._answers.client_left()
        self.close()

    # Called by the server.

    def close(self) -> None:
        """Take no more requests, answer the received ones, then close."""
        if _Hold.CLOSING not in self._holds:
            self._hold(_Hold.CLOSING)
        self._end_if_done()

    def abort(self) -> None:
        """Close now. Accepted requests that outlive their client go on."""
        self._transport.abort()

    def kill(self) -> None:
        """Close now and wait for nothing."""
        self.abort()
        if self._entering is not None:
            self._entering.cancel()
        self._end()

    @property
    def closed(self) -> "asyncio.Future[None]":
        """Done when the socket is closed and no request is being worked on."""
        return self._closed

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
        if not self._answers.is_paused:
            return False
        self._unsent.note(self._clock.monotonic(), self._transport.get_write_buffer_size())
        return self._unsent.is_late(stall_s, least_bytes_per_s)

    def is_idle(self, idle_s: float) -> bool:
        """Tell whether nothing has moved for this long, and no request is being worked on.

        A client that takes no response counts as idle, although its requests are unanswered.
        """
        works = self._unanswered > 0 and not self._answers.is_paused
        if works or _Hold.BUDGET in self._holds:
            return False
        return self._clock.monotonic() - max(self._moved_s, self._answered_s) > idle_s

    # Reading.

    def _take_requests(self) -> None:
        """Take requests out of the arrived bytes, up to one that has to wait."""
        try:
            while not self._holds and (progress := self._frames.proceed()) is not Progress.PARTIAL:
                if progress is Progress.WHOLE:
                    self._arrived()
                else:
                    self._ask_for_admission()
        except FrameSizeError as error:
            log.info("Closing the connection of %s: %s", self.peer, error)
            self.close()
        self._frames.keep()

    def _read_on(self) -> None:
        if not self._holds:
            self._take_requests()
        if not self._holds:
            self._transport.resume_reading()

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
        self._began_s = self._moved_s
        self._unanswered += 1
        if self._unanswered >= self._max_unanswered:
            self._hold(_Hold.UNANSWERED)
        self._arrivals.append(arrival)
        self._accept_arrivals()

    def _hold(self, reason: _Hold) -> None:
        if not self._holds:
            self._transport.pause_reading()
        self._holds.add(reason)

    def _let_go(self, reason: _Hold) -> None:
        """Read on, but not at once: this may be called while another connection gives memory back,
        and each request that is taken may give back more."""
        self._holds.discard(reason)
        if not self._holds:
            asyncio.get_running_loop().call_soon(self._read_on)

    # Working.

    def _accept_arrivals(self) -> None:
        """Accept requests in their order, up to one that has to wait."""
        while self._arrivals and self._entering is None:
            self._accept(*self._arrivals.popleft())

    def _accept(self, frame: bytearray, grant: Grant) -> None:
        try:
            accepted = self._acceptor.accept(frame, self._session)
        except Exception as error:
            self._refuse(grant, error)
            return
        if isinstance(accepted, Entering):
            self._entering = asyncio.get_running_loop().create_task(accepted.entered)
            self._entering.add_done_callback(partial(self._entered, grant))
        else:
            self._answers.add(accepted, grant)

    def _entered(self, grant: Grant, entering: "asyncio.Task[Running | InTurn]") -> None:
        self._entering = None
        if entering.cancelled():
            grant.release()
        elif (error := entering.exception()) is not None:
            self._refuse(grant, error)
        else:
            self._answers.add(entering.result(), grant)
        self._accept_arrivals()
        self._end_if_done()

    def _refuse(self, grant: Grant, error: BaseException) -> None:
        """Close when the earlier requests are answered. The ones behind are not accepted."""
        grant.release()
        while self._arrivals:
            self._arrivals.popleft().grant.release()
        if isinstance(error, CallError):
            log.info("Closing the connection of %s: %s", self.peer, error)
        else:
            reason = "Closing the connection of %s: a request was not accepted"
            log.error(reason, self.peer, exc_info=error)
        self.close()

    def _taken(self, count: int) -> None:
        """Note that the client has taken so many answers."""
        self._unanswered -= count
        self._answered_s = self._clock.monotonic()
        if _Hold.UNANSWERED in self._holds and self._unanswered < self._max_unanswered:
            self._let_go(_Hold.UNANSWERED)
        self._end_if_done()

    def _end_if_done(self) -> None:
        """Close a connection that takes no more requests and has answered all of them."""
        works = bool(self._arrivals) or self._entering is not None or not self._answers.is_empty
        if works or _Hold.CLOSING not in self._holds:
            return
        self._transport.close()
        if self._is_lost:
            self._end()

    def _end(self) -> None:
        self._answers.end()
        if not self._closed.done():
            self._session.end()
            self._closed.set_result(None)
            self._on_closed(self)


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
