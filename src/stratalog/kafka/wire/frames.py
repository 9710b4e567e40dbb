"""Cuts a stream of bytes into requests.

Pure: it offers a buffer for the next bytes, and is given the number that arrived. Between requests
that is a small buffer which all connections of a server share: one read takes many small requests
from the socket, or the beginning of a large one, whose rest is received straight into a buffer of
its own. A request is admitted in steps, so that its memory can be reserved first and a stated size
alone takes none.
"""

import struct
from enum import Enum

from stratalog.kafka.wire.errors import FrameSizeError
from stratalog.kafka.wire.header import SMALLEST_REQUEST_BYTES
from stratalog.kafka.wire.primitives import INT32
from stratalog.objects.memory import grow

_LENGTH_BYTES = 4
_HEAD = struct.Struct(">ih")
_NOTHING = memoryview(b"")

_SHARED_BYTES = 4 << 10
"""A connection that has to wait keeps so many bytes at the most that no request was admitted for.
They are some twenty small requests, enough for the price of a read to be shared by many."""


class Progress(Enum):
    PARTIAL = "partial"
    """More bytes have to arrive."""
    HEAD = "head"
    """The size and the API key are known; it goes on after `admit`."""
    STEP = "step"
    """All admitted bytes have arrived; it goes on after `admit`."""
    WHOLE = "whole"
    """A request is complete: `take` it."""


def shared_buffer() -> memoryview:
    """Return a buffer for all connections of an event loop. It holds bytes of one connection from
    `buffer` until `keep`, and no other connection is called in between."""
    return memoryview(bytearray(_SHARED_BYTES))


class FrameReceiver:
    def __init__(self, max_request_bytes: int, shared: memoryview) -> None:
        self._max_request_bytes = max_request_bytes
        self._shared = shared
        self._restart()
        self._unread = _NOTHING
        """Arrived bytes of which no request was made yet."""

    def _restart(self) -> None:
        self.size_bytes = 0
        self.api_key = -1
        self.admitted_bytes = 0
        self._target: bytearray | None = None
        self._filled = 0

    def forget(self) -> None:
        """Drop the request that has arrived in part."""
        self._restart()
        self._unread = _NOTHING

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty.

        The body grows here and not in `admit`: a bytearray cannot grow while a transport still
        holds the buffer that it received the last bytes into.
        """
        if self._target is None:
            return self._shared[:]
        missing = self.admitted_bytes - len(self._target)
        if missing > 0:
            grow(self._target, self.admitted_bytes)
        return memoryview(self._target)[self._filled :]

    @property
    def is_idle(self) -> bool:
        """True if no byte of the next request has arrived."""
        return self._target is None and not self._unread

    def received(self, count: int) -> None:
        """Note that so many bytes are in the buffer. Call `proceed` until all are used, and then
        `keep`."""
        if self._target is not None:
            self._filled += count
        elif self._unread:
            self._unread = memoryview(bytes(self._unread) + self._shared[:count])
        else:
            self._unread = self._shared[:count]

    def proceed(self) -> Progress:
        """Go on with the arrived bytes."""
        if self._target is None:
            return self._begin()
        if self._filled == self.size_bytes:
            return Progress.WHOLE
        return Progress.STEP if self._filled == self.admitted_bytes else Progress.PARTIAL

    def _begin(self) -> Progress:
        if len(self._unread) < _HEAD.size:
            if len(self._unread) >= _LENGTH_BYTES:
                self._check_size(*INT32.unpack_from(self._unread))
            return Progress.PARTIAL
        self.size_bytes, self.api_key = _HEAD.unpack_from(self._unread)
        self._check_size(self.size_bytes)
        return Progress.HEAD

    def admit(self, count: int) -> None:
        """Let the next bytes of the body arrive."""
        self.admitted_bytes += count
        if self._target is None:
            self._target = bytearray()
            self._unread = self._unread[_LENGTH_BYTES:]
        if self._unread:
            self._target += self._unread[:count]
            self._filled = len(self._target)
            self._unread = self._unread[count:]

    def take(self) -> bytearray:
        frame = self._target
        assert frame is not None
        self._restart()
        return frame

    def keep(self) -> None:
        """Copy the unread bytes out of the shared buffer, which others use next."""
        if self._unread:
            self._unread = memoryview(bytes(self._unread))

    def _check_size(self, size: int) -> None:
        if not SMALLEST_REQUEST_BYTES <= size <= self._max_request_bytes:
            raise FrameSizeError(
                f"a request of {size} bytes: the least is {SMALLEST_REQUEST_BYTES}, "
                f"the most {self._max_request_bytes}"
            )
