import struct
from collections.abc import Iterator

import pytest

from stratalog.kafka.wire.errors import FrameSizeError
from stratalog.kafka.wire.frames import FrameReceiver, Progress

MAX_BYTES = 1000
ADMITTED_BYTES = 300


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(receiver: FrameReceiver, data: bytes, step: int) -> Iterator[bytes]:
    """Put the bytes where the receiver wants them, `step` at the most at a time."""
    while data:
        room = receiver.buffer()
        count = min(len(room), step, len(data))
        room[:count] = data[:count]
        room.release()
        data = data[count:]
        progress = receiver.received(count)
        if progress is Progress.HEAD or progress is Progress.STEP:
            receiver.admit(min(ADMITTED_BYTES, receiver.size_bytes - receiver.admitted_bytes))
        elif progress is Progress.WHOLE:
            yield bytes(receiver.take())


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 10_000])
def test_requests_come_out_as_they_went_in_however_the_stream_is_cut(step: int) -> None:
    payloads = [bytes([0, key]) + b"x" * size for key, size in [(0, 6), (3, 7), (18, 998)]]
    receiver = FrameReceiver(MAX_BYTES)
    assert list(feed(receiver, b"".join(map(framed, payloads)), step)) == payloads
    assert receiver.is_idle


def test_the_key_and_size_are_known_before_the_body_has_room() -> None:
    receiver = FrameReceiver(MAX_BYTES)
    receiver.buffer()[:] = struct.pack(">ih", 100, 18)
    assert receiver.received(6) is Progress.HEAD
    assert (receiver.size_bytes, receiver.api_key) == (100, 18)
    receiver.admit(100)
    assert len(receiver.buffer()) == 98


def test_a_body_has_no_more_room_than_was_admitted() -> None:
    receiver = FrameReceiver(MAX_BYTES)
    receiver.buffer()[:] = struct.pack(">ih", 100, 18)
    assert receiver.received(6) is Progress.HEAD
    receiver.admit(30)
    assert len(receiver.buffer()) == 28
    assert receiver.received(20) is Progress.PARTIAL
    assert receiver.received(8) is Progress.STEP
    receiver.admit(70)
    assert len(receiver.buffer()) == 70
    assert receiver.received(70) is Progress.WHOLE


@pytest.mark.parametrize("size", [-1, 0, 7, MAX_BYTES + 1, 2**31 - 1, -(2**31)])
def test_an_absurd_length_is_refused_as_soon_as_it_is_there(size: int) -> None:
    receiver = FrameReceiver(MAX_BYTES)
    receiver.buffer()[:4] = struct.pack(">i", size)
    with pytest.raises(FrameSizeError):
        receiver.received(4)


@pytest.mark.parametrize("size", [8, MAX_BYTES])
def test_the_smallest_and_the_largest_request_are_taken(size: int) -> None:
    receiver = FrameReceiver(MAX_BYTES)
    receiver.buffer()[:4] = struct.pack(">i", size)
    assert receiver.received(4) is Progress.PARTIAL
    assert not receiver.is_idle


def test_every_request_has_a_buffer_of_its_own() -> None:
    receiver = FrameReceiver(MAX_BYTES)
    first, second = feed(receiver, framed(b"\0\0aaaaaa") + framed(b"\0\0bbbbbb"), 10_000)
    assert (first, second) == (b"\0\0aaaaaa", b"\0\0bbbbbb")
