"""Batches that a scan left out because their records cannot be decoded."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutBatch:
    """A batch whose checksum is right and whose records cannot be decoded."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    object_key: str
    position: int
    """The first byte of the batch in the object or, for a segment, in its log."""
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}, offsets {self.first_offset} to {self.last_offset}, in"
            f" object {self.object_key} from byte {self.position}: {self.reason}"
        )


OnLeftOut: TypeAlias = Callable[[LeftOutBatch], object]


def warn_of_left_out(batch: LeftOutBatch) -> None:
    _log.warning("A batch that cannot be decoded was left out: %s", batch)
