"""Planning of ranged reads: which requests to make, and how to cut their answers. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.objects.errors import ShortReadError
from stratalog.objects.store import Buffer, Range

REMOTE_GAP_BYTES = 1024 * 1024
"""Bytes between two ranges that are read along rather than asked for apart. One connection to S3
carries some 50 to 100 MB/s and takes 10 to 20 ms to answer: a megabyte costs about one request."""

FOLDER_GAP_BYTES = 16 * 1024
"""The same for a local file, where a request is a system call of some microseconds."""

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Merging stops here: larger requests gain nothing, and several run in parallel."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    requests: list[Range]
    places: list[int]
    """For each wanted range, the request that covers it."""


def plan_reads(ranges: Sequence[Range], gap_bytes: int) -> ReadPlan:
    """Cover all ranges, which may come in any order and may overlap, with few requests."""
    requests: list[Range] = []
    places = [0] * len(ranges)
    for position in sorted(range(len(ranges)), key=lambda index: ranges[index]):
        wanted = ranges[position]
        if requests and _joins(requests[-1], wanted, gap_bytes):
            last = requests[-1]
            requests[-1] = Range(last.start, max(last.end, wanted.end))
        else:
            requests.append(wanted)
        places[position] = len(requests) - 1
    return ReadPlan(requests, places)


def _joins(request: Range, wanted: Range, gap_bytes: int) -> bool:
    if wanted.end <= request.end:
        return True
    near = wanted.start - request.end <= gap_bytes
    return near and wanted.end - request.start <= MAX_REQUEST_BYTES


def cut_answers(
    key: str, ranges: Sequence[Range], plan: ReadPlan, answers: Sequence[Buffer]
) -> list[Buffer]:
    """The wanted ranges as views into the answers, which stay alive as long as a view does."""
    for request, answer in zip(plan.requests, answers, strict=True):
        check_length(key, request, len(answer))
    cut: list[Buffer] = []
    for wanted, place in zip(ranges, plan.places, strict=True):
        start = plan.requests[place].start
        cut.append(memoryview(answers[place])[wanted.start - start : wanted.end - start])
    return cut


@dataclass(slots=True)
class Scatter:
    """One request whose answer goes to several places in memory, in the order of its bytes."""

    request: Range
    views: list[memoryview]


def plan_scatter(
    ranges: Sequence[Range], into: Sequence[memoryview], gap_bytes: int
) -> list[Scatter]:
    """Plan requests that fill each view with its range. Small gaps between ranges are read, too."""
    scatters: list[Scatter] = []
    for position in sorted(range(len(ranges)), key=lambda index: ranges[index]):
        wanted, view = ranges[position], into[position]
        assert len(view) == wanted.end - wanted.start, "memory is as large as what goes there"
        if not (scatters and _follows(scatters[-1].request, wanted, gap_bytes)):
            scatters.append(Scatter(wanted, [view]))
            continue
        last = scatters[-1]
        between = wanted.start - last.request.end
        last.views += [memoryview(bytearray(between)), view] if between else [view]
        last.request = Range(last.request.start, wanted.end)
    return scatters


def _follows(request: Range, wanted: Range, gap_bytes: int) -> bool:
    return wanted.start >= request.end and _joins(request, wanted, gap_bytes)


def copied_into(answers: Sequence[Buffer], into: Sequence[memoryview]) -> list[Buffer]:
    for answer, view in zip(answers, into, strict=True):
        view[:] = answer
    return [*into]


def check_length(key: str, request: Range, answered_bytes: int) -> None:
    expected = request.end - request.start
    if answered_bytes != expected:
        raise ShortReadError(
            f"bytes [{request.start}, {request.end}) of object {key!r}:"
            f" {answered_bytes} came instead of {expected}"
        )
