"""The state of tiering and the reports of runs, as tables and JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from stratalog.cli.output import print_table, say

if TYPE_CHECKING:
    from stratalog.control.pipeline.model import ParkedUnit, Run, TierStatus


def status_json(status: "TierStatus", name: str, now_ms: int) -> dict[str, Any]:
    return {
        "topic": name,
        "segments": status.segments,
        "pending_rows": status.pending_rows,
        "pending_split_files": status.pending_split_files,
        "eligible_rows": status.eligible_rows,
        "eligible_bytes": status.eligible_bytes,
        "lag_bytes": status.pending_bytes,
        "lag_seconds": _lag_seconds(status, now_ms),
        "paused_since_ms": status.paused_since_ms,
        "triggered_ms": status.triggered_ms,
        "parked": [_parked_json(unit) for unit in status.parked],
        "partitions": [
            {
                "partition": index,
                "tiered_end": status.tiered_end[index],
                "block_start": status.block_start[index],
                "high_watermark": status.high_watermark[index],
            }
            for index in sorted(status.high_watermark)
        ],
    }


def print_statuses(statuses: Sequence[Mapping[str, Any]], *, partitions: bool) -> None:
    """A row per topic. With `partitions`, the boundaries of each partition after it."""
    print_table(
        ["topic", "segments", "rows", "split files", "eligible", "lag", "since", "state"],
        [
            [
                status["topic"],
                status["segments"],
                status["pending_rows"],
                status["pending_split_files"],
                _mb(status["eligible_bytes"]),
                _mb(status["lag_bytes"]),
                _duration(status["lag_seconds"]),
                _state(status),
            ]
            for status in statuses
        ],
    )
    for status in statuses:
        if partitions:
            _print_partitions(status["partitions"])
        for unit in status["parked"]:
            text = (
                f"{status['topic']}-{unit['partition']} since {_time(unit['since_ms'])}, after"
                f" {unit['attempts']} attempts: {unit['error']}"
            )
            say(f"[yellow]parked[/] {escape(text)}")


def _print_partitions(partitions: Sequence[Mapping[str, Any]]) -> None:
    say("")
    print_table(
        ["partition", "tiered end", "block start", "high watermark"],
        [list(partition.values()) for partition in partitions],
    )


def run_json(run: "Run") -> dict[str, Any]:
    return {
        "run_id": str(run.run_id),
        "holder": run.holder,
        "started_ms": run.started_ms,
        "finished_ms": run.finished_ms,
        "report": dict(run.report),
    }


def print_runs(runs: "Sequence[Run]") -> None:
    print_table(
        ["started", "by", "took", "segments", "files", "read", "written", "requests", "speed", ""],
        [_run_row(run) for run in runs],
    )


def _run_row(run: "Run") -> list[object]:
    report: Mapping[str, Any] = run.report
    seconds = report.get("seconds", 0.0)
    moved = report.get("merged_bytes", 0) + report.get("split_bytes", 0)
    failed = report.get("failed_partitions", 0)
    return [
        _time(run.started_ms),
        run.holder,
        f"{seconds:.1f} s",
        report.get("segments", 0),
        report.get("split_files", 0),
        _mb(report.get("bytes_read", 0)),
        _mb(report.get("bytes_written", 0)),
        report.get("requests", 0),
        f"{moved / 1e6 / seconds:.0f} MB/s" if seconds else "-",
        "not finished" if run.finished_ms is None else f"{failed} failed" if failed else "",
    ]


def _parked_json(unit: "ParkedUnit") -> dict[str, Any]:
    return {
        "partition": unit.partition.partition,
        "attempts": unit.attempts,
        "error": unit.error,
        "since_ms": unit.since_ms,
    }


def _lag_seconds(status: "TierStatus", now_ms: int) -> float | None:
    return None if status.oldest_ms is None else max(0, now_ms - status.oldest_ms) / 1000


def _state(status: Mapping[str, Any]) -> str:
    states = []
    if status["paused_since_ms"] is not None:
        states.append("paused")
    elif status["triggered_ms"] is not None:
        states.append("triggered")
    if status["parked"]:
        states.append(f"{len(status['parked'])} parked")
    return ", ".join(states) or ("idle" if not status["eligible_rows"] else "waiting")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
