from dataclasses import dataclass
from uuid import UUID

from stratalog.control.sql.table import Selection, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One restore of a backup, or one rebuild from the store."""

    recovery_id: UUID
    ground: str
    """The name of the backup, or how else the control plane came to be."""
    begun_ms: int
    finished_ms: int | None
    report: str | None


RECOVERIES = Table(
    "recoveries",
    recovery_id="uuid",
    ground="text",
    begun_ms="bigint",
    finished_ms="bigint null",
    report="text null",
)
RECOVERY = Selection(Recovery, RECOVERIES)
