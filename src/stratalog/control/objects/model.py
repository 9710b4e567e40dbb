from dataclasses import dataclass
from enum import StrEnum

from stratalog.ids import ObjectId


class ObjectKind(StrEnum):
    BLOCK = "block"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObjectRow:
    """A row of `objects`: what the control plane knows about one object."""

    object_id: ObjectId
    key: str
    kind: ObjectKind
    size_bytes: int
    committed_ms: int
    marked_ms: int | None


class ObjectState(StrEnum):
    LIVE = "live"
    MARKED = "marked"
    GONE = "gone"
    """Deleted from the store; the row stays while somebody may be in doubt about its commit."""
    BARRED = "barred"
