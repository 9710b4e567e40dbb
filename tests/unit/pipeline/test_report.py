from dataclasses import fields

import pytest

from stratalog.pipeline.plan.tasks import Effort
from stratalog.pipeline.report import KEPT_ERROR_CHARS, KEPT_ERRORS, Report


def test_a_run_that_did_nothing_says_so_in_five_lines() -> None:
    assert Report().lines() == [
        "merged  0 partitions into 0 segments, 0.0 MB",
        "split   0 partitions into 0 files, 0.0 MB",
        "moved   0.0 MB read, 0.0 MB written, 0 requests, 0.0 s, 0 MB/s",
        "freed   0 rows, 0 objects",
        "left    nothing",
    ]
    assert Report().did_nothing


def test_five_lines_tell_what_a_run_moved_freed_and_left() -> None:
    report = Report(
        merged_partitions=1,
        segments=1,
        merged_bytes=30_000_000,
        split_partitions=1200,
        split_files=2,
        split_bytes=10_000_000,
        rows_removed=1_234_567,
        seconds=4.0,
        waiting={"with too little": 3, "in another run": 1},
        elsewhere=2,
        overtaken=1,
        objects_deleted=1,
        commits=3,
    )
    report.add(Effort(bytes_read=41_000_000, bytes_written=40_500_000, requests=1, seconds=9.0))
    assert report.lines() == [
        "merged  1 partition into 1 segment, 30.0 MB",
        "split   1,200 partitions into 2 files, 10.0 MB",
        "moved   41.0 MB read, 40.5 MB written, 1 request, 4.0 s, 10 MB/s",
        "freed   1,234,567 rows, 1 object",
        "left    3 partitions with too little, 1 partition in another run,"
        " 2 partitions that another run was quicker to take, 1 partition changed meanwhile",
    ]
    assert not report.did_nothing


def test_the_first_three_failures_are_told_and_the_others_counted() -> None:
    failed = {f"orders-{number}": f"error {number}" for number in range(3)}
    assert Report(failed=failed).lines()[5:] == [
        "failed  orders-0: error 0",
        "failed  orders-1: error 1",
        "failed  orders-2: error 2",
    ]
    more = failed | {"orders-3": "error 3", "orders-4": "error 4"}
    assert Report(failed=more).lines()[5:] == [
        *Report(failed=failed).lines()[5:],
        "failed  and 2 more",
    ]


def test_a_later_run_adds_its_figures_and_its_own_waiting() -> None:
    total = Report(segments=1, requests=5, waiting={"a": 9}, failed={"x": "1"}, parked=["x"])
    later = Report(segments=2, requests=6, waiting={"b": 1}, failed={"y": "2"}, parked=["y"])
    total.include(later)
    assert (total.segments, total.requests, total.waiting) == (3, 11, {"b": 1})
    assert (total.failed, total.parked) == ({"x": "1", "y": "2"}, ["x", "y"])


def test_every_figure_of_two_runs_is_added() -> None:
    numbers = [one.name for one in fields(Report) if one.type in (int, float)]
    total = Report()
    for run in (1, 2):
        later = Report()
        for place, name in enumerate(numbers):
            setattr(later, name, run * (place + 1))
        total.include(later)
    assert [getattr(total, name) for name in numbers] == [3 * (n + 1) for n in range(len(numbers))]


def test_the_history_keeps_every_figure() -> None:
    kept = Report(segments=2, failed={"x": "1"}, parked=["x"]).to_json()
    assert (kept.pop("failed_partitions"), kept.pop("parked_partitions")) == (1, 1)
    assert Report(**kept) == Report(segments=2, failed={"x": "1"}, parked=["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [0, 1, 14_000])
def test_the_history_keeps_the_first_failures_and_their_number(more: int) -> None:
    names = [f"orders-{number}" for number in range(KEPT_ERRORS + more)]
    kept = Report(failed=dict.fromkeys(names, "why"), parked=names).to_json()
    assert kept["failed"] == dict.fromkeys(names[:KEPT_ERRORS], "why")
    assert kept["parked"] == names[:KEPT_ERRORS]
    assert (kept["failed_partitions"], kept["parked_partitions"]) == (len(names), len(names))


@pytest.mark.parametrize("more", [0, 1, 1_000_000])
def test_the_history_keeps_the_beginning_of_a_long_error(more: int) -> None:
    report = Report(failed={"x": "e" * (KEPT_ERROR_CHARS + more)})
    [told] = report.to_json()["failed"].values()  # type: ignore[attr-defined]
    assert told == ("e" * (KEPT_ERROR_CHARS - 1) + "…" if more else report.failed["x"])
    assert len(told) == KEPT_ERROR_CHARS
