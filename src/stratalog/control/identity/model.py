from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What makes this control plane this one and no other."""

    cluster_id: UUID
    generation: int
    """Grows with every broker start and every sweep. The object store's marker carries the
    newest value, so that a control plane restored from an old backup is noticed."""
    segments_apart: bool | None = None
    """Whether its own segments lie in a store apart from its blocks. None: not noted, because no
    broker that could has started yet."""
