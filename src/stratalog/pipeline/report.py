"""The report of a run of the pipeline, for people and for the history."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice

from stratalog.pipeline.plan.tasks import Effort

_SHOWN_ERRORS = 3
KEPT_ERRORS = 100
"""Errors in the history, which keeps thousands of reports, and in the log. Where more partitions
fail, they mostly fail for one reason, and the first errors name it."""
KEPT_ERROR_CHARS = 300
_SUMS = (
    "merged_partitions",
    "segments",
    "merged_bytes",
    "split_partitions",
    "split_files",
    "split_bytes",
    "rows_removed",
    "bytes_read",
    "bytes_written",
    "requests",
    "seconds",
    "elsewhere",
    "overtaken",
    "objects_deleted",
    "commits",
)


@dataclass(slots=True, kw_only=True)
class Report:
    merged_partitions: int = 0
    segments: int = 0
    merged_bytes: int = 0
    split_partitions: int = 0
    split_files: int = 0
    split_bytes: int = 0
    rows_removed: int = 0
    """Coordinates that the control plane need not keep any more."""
    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    seconds: float = 0.0
    waiting: dict[str, int] = field(default_factory=dict)
    """Partitions with aged rows that were left alone, by reason."""
    elsewhere: int = 0
    """Partitions that another run has taken since this one looked."""
    overtaken: int = 0
    """Partitions whose rows were deleted, or taken over, while they were converted."""
    failed: dict[str, str] = field(default_factory=dict)
    """The error of each partition that failed, by its name."""
    parked: list[str] = field(default_factory=list)
    objects_deleted: int = 0
    done: set[str] = field(default_factory=set)
    """Partitions with which nothing went wrong. For `include` only: they may be very many."""
    commits: int = 0
    """Commits of all kinds. For `did_nothing` only."""

    def add(self, effort: Effort) -> None:
        self.bytes_read += effort.bytes_read
        self.bytes_written += effort.bytes_written
        self.requests += effort.requests

    def include(self, later: "Report") -> None:
        """Add the report of a later run.

        Only the partitions that the later run left are waiting now, and a partition that it could
        convert is no failure any more.
        """
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.waiting = later.waiting
        cured = later.done - later.failed.keys()
        self.failed = {
            name: error for name, error in self.failed.items() if name not in cured
        } | later.failed
        self.parked += later.parked

    def to_json(self) -> dict[str, object]:
        """Return all figures, and of the failures the first ones and their number."""
        shortened = replace(
            self, failed=_first(self.failed), parked=self.parked[:KEPT_ERRORS], done=set()
        )
        figures = asdict(shortened)
        del figures["done"], figures["commits"]
        return {
            **figures,
            "failed_partitions": len(self.failed),
            "parked_partitions": len(self.parked),
        }

    @property
    def did_nothing(self) -> bool:
        """True if nothing was committed: another run would most likely do the same."""
        return not self.commits

    def lines(self) -> list[str]:
        """Return five lines at the most, plus one for each of the first failures."""
        speed = (self.merged_bytes + self.split_bytes) / 1e6 / self.seconds if self.seconds else 0
        lines = [
            f"merged  {_partitions(self.merged_partitions)} into"
            f" {counted(self.segments, 'segment')}, {_mb(self.merged_bytes)}",
            f"split   {_partitions(self.split_partitions)} into"
            f" {counted(self.split_files, 'file')}, {_mb(self.split_bytes)}",
            f"moved   {_mb(self.bytes_read)} read, {_mb(self.bytes_written)} written, "
            f"{counted(self.requests, 'request')}, {self.seconds:.1f} s, {speed:.0f} MB/s",
            f"freed   {counted(self.rows_removed, 'row')}, "
            f"{counted(self.objects_deleted, 'object')}",
            f"left    {self._left()}",
        ]
        shown = list(self.failed.items())[:_SHOWN_ERRORS]
        lines += [f"failed  {partition}: {error}" for partition, error in shown]
        if len(self.failed) > len(shown):
            lines.append(f"failed  and {len(self.failed) - len(shown)} more")
        return lines

    def _left(self) -> str:
        reasons = [f"{_partitions(count)} {reason}" for reason, count in self.waiting.items()]
        if self.elsewhere:
            reasons.append(f"{_partitions(self.elsewhere)} that another run was quicker to take")
        if self.overtaken:
            reasons.append(f"{_partitions(self.overtaken)} changed meanwhile")
        return ", ".join(reasons) or "nothing"


def _first(failed: Mapping[str, str]) -> dict[str, str]:
    return {name: _cut(error) for name, error in islice(failed.items(), KEPT_ERRORS)}


def _cut(error: str) -> str:
    return error if len(error) <= KEPT_ERROR_CHARS else error[: KEPT_ERROR_CHARS - 1] + "…"


def _partitions(count: int) -> str:
    return counted(count, "partition")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
