import struct
from collections.abc import Iterator

import pytest

from stratalog.kafka.wire.errors import FrameSizeError
from stratalog.kafka.wire.frames import FrameReceiver, Progress, shared_buffer

MAX_BYTES = 10_000
ADMITTED_BYTES = 300
HEAD = struct.pack(">ih", 100, 18)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.fixture
def receiver() -> FrameReceiver:
    return FrameReceiver(MAX_BYTES, shared_buffer())


def arrive(receiver: FrameReceiver, data: bytes) -> Progress:
    room = receiver.buffer()
    room[: len(data)] = data
    room.release()
    receiver.received(len(data))
    return receiver.proceed()


def feed(receiver: FrameReceiver, data: bytes, step: int) -> Iterator[bytes]:
    """Put the bytes where the receiver wants them, `step` at the most at a time."""
    while data:
        count = min(len(receiver.buffer()), step, len(data))
        progress, data = arrive(receiver, data[:count]), data[count:]
        while progress is not Progress.PARTIAL:
            if progress is Progress.WHOLE:
                yield bytes(receiver.take())
            else:
                receiver.admit(min(ADMITTED_BYTES, receiver.size_bytes - receiver.admitted_bytes))
            progress = receiver.proceed()
        receiver.keep()


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 10_000])
def test_requests_come_out_as_they_went_in_however_the_stream_is_cut(
    receiver: FrameReceiver, step: int
) -> None:
    sizes = [(0, 6), (3, 7), (18, 998), (1, 6), (0, MAX_BYTES - 2), (0, 300)]
    payloads = [bytes([0, key]) + b"x" * size for key, size in sizes]
    assert list(feed(receiver, b"".join(map(framed, payloads)), step)) == payloads
    assert receiver.is_idle


def test_the_key_and_size_are_known_before_the_body_has_room(receiver: FrameReceiver) -> None:
    assert arrive(receiver, HEAD) is Progress.HEAD
    assert (receiver.size_bytes, receiver.api_key) == (100, 18)
    receiver.admit(100)
    assert receiver.proceed() is Progress.PARTIAL
    assert len(receiver.buffer()) == 98


def test_a_body_has_no_more_room_than_was_admitted(receiver: FrameReceiver) -> None:
    assert arrive(receiver, HEAD) is Progress.HEAD
    receiver.admit(30)
    assert len(receiver.buffer()) == 28
    assert arrive(receiver, bytes(20)) is Progress.PARTIAL
    assert arrive(receiver, bytes(8)) is Progress.STEP
    receiver.admit(70)
    assert len(receiver.buffer()) == 70
    assert arrive(receiver, bytes(70)) is Progress.WHOLE


@pytest.mark.parametrize("size", [-1, 0, 7, MAX_BYTES + 1, 2**31 - 1, -(2**31)])
def test_an_absurd_length_is_refused_as_soon_as_it_is_there(
    receiver: FrameReceiver, size: int
) -> None:
    with pytest.raises(FrameSizeError):
        arrive(receiver, struct.pack(">i", size))


@pytest.mark.parametrize("size", [8, MAX_BYTES])
def test_the_smallest_and_the_largest_request_are_taken(receiver: FrameReceiver, size: int) -> None:
    assert arrive(receiver, struct.pack(">i", size)) is Progress.PARTIAL
    assert not receiver.is_idle


def test_every_request_has_a_buffer_of_its_own(receiver: FrameReceiver) -> None:
    first, second = feed(receiver, framed(b"\0\0aaaaaa") + framed(b"\0\0bbbbbb"), 10_000)
    assert (first, second) == (b"\0\0aaaaaa", b"\0\0bbbbbb")


def test_a_request_that_waits_for_admission_keeps_its_bytes_while_others_receive() -> None:
    shared = shared_buffer()
    waiting, other = FrameReceiver(MAX_BYTES, shared), FrameReceiver(MAX_BYTES, shared)
    assert arrive(waiting, framed(b"\0\0aaaaaa") + framed(b"\0\0bbbb")) is Progress.HEAD
    waiting.keep()
    assert list(feed(other, framed(b"\0\0" + bytes(200)), 10_000))
    waiting.admit(8)
    assert waiting.proceed() is Progress.WHOLE
    assert waiting.take() == b"\0\0aaaaaa"


def test_half_a_head_is_kept_while_others_receive() -> None:
    shared = shared_buffer()
    waiting, other = FrameReceiver(MAX_BYTES, shared), FrameReceiver(MAX_BYTES, shared)
    sent = framed(b"\0\0aaaaaa")
    assert arrive(waiting, sent[:5]) is Progress.PARTIAL
    waiting.keep()
    assert list(feed(other, framed(b"\0\0" + bytes(200)), 10_000))
    assert list(feed(waiting, sent[5:], 10_000)) == [b"\0\0aaaaaa"]
