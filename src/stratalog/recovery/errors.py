"""Errors of a recovery."""

from typing import TYPE_CHECKING

from stratalog.errors import CallError

if TYPE_CHECKING:
    from stratalog.recovery.report import RecoveryReport


class UnprovenOffsetsError(CallError):
    """The records of some offsets cannot be proven, and they are not to be skipped."""

    def __init__(self, report: "RecoveryReport") -> None:
        ranges = [
            f"{partition.name} offsets {each.start} to {each.end - 1}"
            for partition in report.partitions
            for each in partition.unproven
        ]
        super().__init__(
            f"the records of these offsets cannot be proven: {', '.join(ranges)}. Nothing was"
            " changed. To go on without them, so that none of the offsets is used again, repeat"
            " with --skip-unproven"
        )
        self.report = report
