"""Cuts a stream of bytes into requests, each received straight into a buffer of its own.

Pure: it offers a buffer for the next bytes, and is given the number that arrived. The body of a
request is admitted in steps, each before it is received, so that its memory can be reserved first
and a stated size alone takes none.
"""

from enum import Enum

from stratalog.kafka.wire.errors import FrameSizeError
from stratalog.kafka.wire.header import SMALLEST_REQUEST_BYTES, peek_api_key
from stratalog.kafka.wire.primitives import INT32

_LENGTH_BYTES = 4
_KEY_BYTES = 2


class Progress(Enum):
    PARTIAL = "partial"
    HEAD = "head"
    """The size and the API key are known; nothing more is received until `admit`."""
    STEP = "step"
    """All admitted bytes have arrived; nothing more is received until `admit`."""
    WHOLE = "whole"
    """A request is complete: `take` it."""


class FrameReceiver:
    def __init__(self, max_request_bytes: int) -> None:
        self._max_request_bytes = max_request_bytes
        self._head = bytearray(_LENGTH_BYTES + _KEY_BYTES)
        self._restart()

    def _restart(self) -> None:
        self.size_bytes = 0
        self.api_key = -1
        self.admitted_bytes = 0
        self._target = self._head
        self._filled = 0

    def forget(self) -> None:
        """Drop the request that has arrived in part."""
        self._restart()

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty.

        The body grows here and not in `admit`: a bytearray cannot grow while a transport still
        holds the buffer that it received the last bytes into.
        """
        missing = self.admitted_bytes - len(self._target)
        if self._target is not self._head and missing > 0:
            self._target.extend(bytes(missing))
        return memoryview(self._target)[self._filled :]

    @property
    def is_idle(self) -> bool:
        """True if no byte of the next request has arrived."""
        return self._target is self._head and self._filled == 0

    def received(self, count: int) -> Progress:
        self._filled += count
        if self._target is not self._head:
            if self._filled == self.size_bytes:
                return Progress.WHOLE
            return Progress.STEP if self._filled == self.admitted_bytes else Progress.PARTIAL
        if self._filled >= _LENGTH_BYTES and not self.size_bytes:
            self.size_bytes = self._checked_size()
        if self._filled < len(self._head):
            return Progress.PARTIAL
        self.api_key = peek_api_key(self._head[_LENGTH_BYTES:])
        return Progress.HEAD

    def admit(self, count: int) -> None:
        """Let the next bytes of the body arrive, of which the API key came with the head."""
        self.admitted_bytes += count
        if self._target is self._head:
            self._target = bytearray(count)
            self._target[:_KEY_BYTES] = self._head[_LENGTH_BYTES:]
            self._filled = _KEY_BYTES

    def take(self) -> bytearray:
        frame = self._target
        self._restart()
        return frame

    def _checked_size(self) -> int:
        (size,) = INT32.unpack_from(self._head)
        if not SMALLEST_REQUEST_BYTES <= size <= self._max_request_bytes:
            raise FrameSizeError(
                f"a request of {size} bytes: the least is {SMALLEST_REQUEST_BYTES}, "
                f"the most {self._max_request_bytes}"
            )
        return int(size)
