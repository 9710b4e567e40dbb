"""The answers of one connection: made when they can be, and written in the order of the requests.

Requests that follow each other and wait for the same, such as the commit of a block, are one round.
They are woken together, and their answers are written together.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from stratalog.errors import CallError
from stratalog.kafka.server.acceptor import InTurn, Release, Response, Running
from stratalog.kafka.server.budget import Grant
from stratalog.kafka.wire.primitives import Buffer

log = logging.getLogger(__name__)

_WRITTEN_TOGETHER = 256
"""The most parts that are handed to the transport before it can say that the client takes none."""


class _Round:
    """Requests that follow each other: first they wait, then they have answers."""

    __slots__ = ("answers", "unbegun", "waiting")

    def __init__(self, unbegun: tuple[InTurn, Grant] | None = None) -> None:
        self.unbegun = unbegun
        self.waiting: list[tuple[Running, Grant]] = []
        self.answers: list[tuple[Response, Release]] = []

    def waits_for(self, done: "asyncio.Future[Any]") -> bool:
        return bool(self.waiting) and self.waiting[0][0].done is done


class AnswerQueue:
    def __init__(
        self, transport: asyncio.Transport, *, peer: str, on_taken: Callable[[int], None]
    ) -> None:
        """`on_taken` gets the number of answers that the client has taken."""
        self._transport = transport
        self._peer = peer
        self._on_taken = on_taken
        self._rounds: deque[_Round] = deque()
        self._untaken: list[Release] = []
        """Of the answers that are written and that the client has not taken yet."""
        self._is_lost = False
        self.is_paused = False
        """True while the client does not take the answers that were written."""

    @property
    def is_empty(self) -> bool:
        return not self._rounds and not self._untaken

    def add(self, accepted: Running | InTurn, grant: Grant) -> None:
        """Take a request. The grant of its frame is released when its answer is made, and the rest
        of its memory when the client has taken the answer or has gone."""
        if isinstance(accepted, InTurn):
            self._rounds.append(_Round((accepted, grant)))
            if len(self._rounds) == 1:
                self._write()
        elif self._rounds and self._rounds[-1].waits_for(accepted.done):
            self._rounds[-1].waiting.append((accepted, grant))
        else:
            self._rounds.append(_Round())
            self._wait(self._rounds[-1], accepted, grant)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._taken()
        self._write()

    def client_left(self) -> None:
        """Give up the requests that do not outlive their client."""
        self._is_lost = True
        for one in self._rounds:
            _cancel(one)
        self.resume()

    def end(self) -> None:
        """Wait for nothing any more, and leave no cycle of references with the connection."""
        for one in self._rounds:
            _cancel(one)
        self._rounds.clear()
        self._on_taken = _ignore

    def _begin(self, first: _Round) -> None:
        """Begin a request whose turn has come."""
        assert first.unbegun is not None
        (in_turn, grant), first.unbegun = first.unbegun, None
        if self._is_lost:
            grant.release()
            first.answers.append((None, in_turn.release))
            return
        task = asyncio.get_running_loop().create_task(in_turn.begin())
        running = Running(task, task.result, outlives_client=False, release=in_turn.release)
        self._wait(first, running, grant)

    def _wait(self, one: _Round, running: Running, grant: Grant) -> None:
        one.waiting.append((running, grant))
        running.done.add_done_callback(partial(self._make, one))

    def _make(self, one: _Round, _done: "asyncio.Future[Any]") -> None:
        """Make the answers of a round, whose turn may not have come."""
        waiting, one.waiting = one.waiting, []
        for running, grant in waiting:
            one.answers.append((self._response_of(running), running.release))
            grant.release()
        if self._rounds and self._rounds[0] is one:
            self._write()

    def _response_of(self, running: Running) -> Response:
        try:
            return running.respond()
        except asyncio.CancelledError:
            pass
        except CallError as error:
            log.info("Closing the connection of %s: %s", self._peer, error)
            self._is_lost = True
            self._transport.close()
        except Exception:
            log.exception("Closing the connection of %s: a request has no answer", self._peer)
            self._is_lost = True
            self._transport.abort()
        return None

    def _write(self) -> None:
        """Write the answers that are made, and begin the request whose turn has come."""
        while self._rounds and not self.is_paused:
            first = self._rounds[0]
            if first.unbegun is not None:
                self._begin(first)
            if not first.answers:
                return
            self._write_some(first.answers)
            if not first.answers:
                self._rounds.popleft()
                self._taken()

    def _write_some(self, answers: list[tuple[Response, Release]]) -> None:
        parts: list[Buffer] = []
        count = 0
        for response, release in answers:
            if response is not None:
                parts += response
            self._untaken.append(release)
            count += 1
            if len(parts) >= _WRITTEN_TOGETHER:
                break
        del answers[:count]
        if not parts or self._is_lost:
            return
        if len(self._untaken) > 1:
            # Answers that are made together go to producers, and carry no records.
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _taken(self) -> None:
        """Give back the memory of the written answers, if the client has taken them."""
        if self.is_paused or not self._untaken:
            return
        untaken, self._untaken = self._untaken, []
        for release in untaken:
            release()
        self._on_taken(len(untaken))


def _ignore(_count: int) -> None:
    return None


def _cancel(one: _Round) -> None:
    for running, _ in one.waiting:
        if not running.outlives_client:
            running.done.cancel()
