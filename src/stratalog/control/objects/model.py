from dataclasses import dataclass
from enum import StrEnum

from stratalog.control.sql.table import Selection, Table
from stratalog.ids import ObjectId


class ObjectKind(StrEnum):
    BLOCK = "block"
    SPLIT = "split"


class ObjectState(StrEnum):
    LIVE = "live"
    MARKED = "marked"
    GONE = "gone"
    """Deleted from the store; the row stays while there may be doubt about its commit."""
    BARRED = "barred"
    KEPT = "kept"
    """Holds records that a recovery could not place. No row refers to it, and it is never swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObjectRow:
    """A row of `objects`: the control plane's knowledge of one object."""

    object_id: ObjectId
    key: str
    kind: ObjectKind
    size_bytes: int
    committed_ms: int
    marked_ms: int | None


OBJECTS = Table(
    "objects",
    object_id="uuid",
    key="text",
    kind="text",
    state="text",
    size_bytes="bigint",
    broker_id="integer",
    committed_ms="bigint",
    marked_ms="bigint null",
    answers="bytea null",
    stuck_ms="bigint null",
)
STORED_OBJECT = Selection(StoredObjectRow, OBJECTS)
OBJECT_ID = OBJECTS.shape("object_id")
