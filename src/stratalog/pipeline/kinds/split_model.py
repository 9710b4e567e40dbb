"""The nouns of a split: the parts of a file, the task that writes it, the uploaded file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import ObjectId
from stratalog.pipeline.plan.tasks import Task

SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The part of one partition in a split file."""

    token: ClaimToken
    topic_name: str
    """For the footer, which must be readable without the control plane."""
    rows: Sequence[Coordinates]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTask(Task):
    """One split file to be written, its partitions in key order."""

    kind: ClassVar[str] = SPLIT
    parts: Sequence[SplitPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPartMade:
    token: ClaimToken
    old_rows: Sequence[Coordinates]
    new_rows: Sequence[Coordinates]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMade:
    """A split file in the store, to be committed by the driver."""

    object_id: ObjectId
    key: str
    size_bytes: int
    parts: Sequence[SplitPartMade]
