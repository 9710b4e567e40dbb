"""The state of the pipeline and the reports of its runs, as people read them."""

from dataclasses import replace
from uuid import UUID

import pytest

from stratalog.cli.pipeline_status import print_runs, print_statuses, run_json, status_json
from stratalog.control.pipeline.model import ParkedUnit, Run, RunId, TierStatus
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.pipeline.report import Report

TOPIC = TopicId(UUID(int=7))
NOON_MS = 1_750_075_200_000
"""2025-06-16 12:00:00."""
ONE, TWO = PartitionIndex(0), PartitionIndex(1)
STATUS = TierStatus(
    topic_id=TOPIC,
    tiered_end={ONE: Offset(5), TWO: Offset(0)},
    block_start={ONE: Offset(5), TWO: Offset(0)},
    high_watermark={ONE: Offset(9), TWO: Offset(3)},
    pending_rows=12,
    pending_bytes=3_500_000,
    pending_split_files=1,
    eligible_rows=2,
    eligible_bytes=1_500_000,
    oldest_ms=NOON_MS,
    segments=4,
    paused_since_ms=None,
    triggered_ms=None,
    parked=(),
)
RUN = Run(
    run_id=RunId(UUID(int=1)), holder="host:7", started_ms=NOON_MS, finished_ms=None, report={}
)


def test_the_lag_is_what_waits_and_since_when() -> None:
    told = status_json(STATUS, "orders", NOON_MS + 90_500)
    assert (told["lag_bytes"], told["lag_seconds"]) == (3_500_000, 90.5)
    assert (told["eligible_rows"], told["eligible_bytes"]) == (2, 1_500_000)
    assert told["partitions"] == [
        {"partition": 0, "tiered_end": 5, "block_start": 5, "high_watermark": 9},
        {"partition": 1, "tiered_end": 0, "block_start": 0, "high_watermark": 3},
    ]


def test_nothing_lags_where_nothing_waits_and_no_clock_makes_it_negative() -> None:
    done = replace(STATUS, pending_rows=0, pending_bytes=0, oldest_ms=None)
    told = status_json(done, "orders", NOON_MS)
    assert (told["lag_bytes"], told["lag_seconds"]) == (0, None)
    assert status_json(STATUS, "orders", NOON_MS - 1)["lag_seconds"] == 0


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (119, "119 s"), (120, "2 m"), (7199, "120 m"), (7200, "2 h"), (172_800, "2 d")],
)
def test_a_status_is_one_line_of_a_table(
    seconds: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_statuses([status_json(STATUS, "orders", NOON_MS + 1000 * seconds)], partitions=False)
    header, line = capsys.readouterr().out.splitlines()
    columns = "TOPIC SEGMENTS ROWS SPLIT FILES ELIGIBLE LAG SINCE STATE"
    assert " ".join(header.split()) == columns
    assert line.split() == f"orders 4 12 1 1.5 MB 3.5 MB {shown} waiting".split()


def test_what_is_parked_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    unit = ParkedUnit(TopicPartition(TOPIC, TWO), attempts=5, error="[bad]", since_ms=NOON_MS)
    stopped = replace(STATUS, parked=[unit], paused_since_ms=NOON_MS, oldest_ms=None)
    print_statuses([status_json(stopped, "orders", NOON_MS)], partitions=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("  -      paused, 1 parked")
    assert lines[3].split() == ["PARTITION", "TIERED", "END", "BLOCK", "START", "HIGH", "WATERMARK"]
    assert [line.split() for line in lines[4:6]] == [["0", "5", "5", "9"], ["1", "0", "0", "3"]]
    assert lines[6:] == ["parked orders-1 since 2025-06-16 12:00:00, after 5 attempts: [bad]"]


def test_the_history_is_a_table_with_a_line_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(
        segments=3,
        merged_bytes=60_000_000,
        split_files=1,
        split_bytes=20_000_000,
        bytes_read=81_000_000,
        bytes_written=80_500_000,
        requests=1234,
        seconds=4.0,
    )
    done = replace(RUN, finished_ms=NOON_MS + 4000, report=report.to_json())
    errors = {f"orders-{number}": "why" for number in range(1234)}
    failed = replace(done, report=Report(failed=errors).to_json())
    print_runs([done, failed, RUN])
    assert capsys.readouterr().out.splitlines() == [
        "STARTED              BY      TOOK   SEGMENTS  FILES  READ     WRITTEN  REQUESTS  SPEED",
        "2025-06-16 12:00:00  host:7  4.0 s  3         1      81.0 MB  80.5 MB  1234      20 MB/s",
        "2025-06-16 12:00:00  host:7  0.0 s  0         0      0.0 MB   0.0 MB   0         -"
        "        1234 failed",
        "2025-06-16 12:00:00  host:7  0.0 s  0         0      0.0 MB   0.0 MB   0         -"
        "        not finished",
    ]


def test_a_run_that_goes_on_has_no_end_yet() -> None:
    assert run_json(RUN) == {
        "run_id": str(UUID(int=1)),
        "holder": "host:7",
        "started_ms": NOON_MS,
        "finished_ms": None,
        "report": {},
    }
