"""Pieces of a partition's log, and the interfaces of the tiers that read them.

A piece is a contiguous range of offsets that one tier holds. A partition's log is one sequence of
pieces without a gap, whatever holds them. A tier is added with a member of `Tier`, a class whose
objects are pieces, a `TierReader` and `TierTimes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from stratalog.errors import StratalogError
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicId

Part: TypeAlias = memoryview | bytearray | bytes
"""Whole, stamped record batches."""


class Tier(StrEnum):
    BLOCK = "block"
    LOCAL = "local"
    REMOTE = "remote"


class Piece(Protocol):
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partition(self) -> PartitionIndex: ...
    @property
    def tier(self) -> Tier: ...
    @property
    def base_offset(self) -> Offset: ...
    @property
    def last_offset(self) -> Offset: ...
    @property
    def end_offset(self) -> Offset: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


PieceT = TypeVar("PieceT", bound=Piece)
PieceT_contra = TypeVar("PieceT_contra", bound=Piece, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The position at which a read of some pieces begins.

    A tier that has looked the position up keeps it in a subclass, so that the read that follows
    does not look it up again.
    """

    size_bytes: int
    """From about the batch that holds the offset to the end of the pieces."""
    first_bytes: int
    """The bytes that the first batch counts for in a budget."""
    is_estimate: bool = False
    """True if `first_bytes` is a guess: the size of the first batch is known only after a read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesWanted(Generic[PieceT]):
    """Consecutive pieces of one partition, to be read from `offset`, which the first one holds.

    A first batch that is larger than `max_bytes` is answered nevertheless: otherwise its reader
    would never move on.
    """

    offset: Offset
    max_bytes: int
    pieces: Sequence[PieceT]
    end: Offset | None = None
    """Pieces from this offset on are not wanted. Batches beyond it are cut off by the caller."""
    start: Start | None = None
    """The answer of `locate` for these pieces and this offset, if it was asked."""


@dataclass(slots=True, kw_only=True)
class PiecesRead:
    """Batches from the one that holds the wanted offset."""

    next_offset: Offset
    """After the last batch, or after the last piece if all pieces were read to their end."""
    parts: list[Part] = field(default_factory=list)
    size_bytes: int = 0
    ended: bool = False
    """True if all the wanted pieces were read to their end."""
    error: StratalogError | None = None
    """The failure that ended the answer. It matters only if there are no parts: otherwise the
    reader comes back for the next offset and meets the failure then."""


class TierReader(Protocol[PieceT]):
    stale_errors: ClassVar[tuple[type[StratalogError], ...]]
    """Errors of pieces that were right when they were looked up and are out of date by now."""

    async def locate(self, wanted: Sequence[PiecesWanted[PieceT]]) -> list[Start | StratalogError]:
        """Find where each read begins and how much there is to read. Each fails alone."""
        ...

    async def read(self, wanted: Sequence[PiecesWanted[PieceT]]) -> list[PiecesRead]:
        """Read each partition's batches, up to its `max_bytes`. Each fails alone."""
        ...


class TimedRecord(NamedTuple):
    """A record that was found by its time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class TierTimes(Protocol[PieceT_contra]):
    """Finds the records of a tier by their time. Records below `log_start` are deleted."""

    async def first_at_time(
        self, piece: PieceT_contra, timestamp: int, log_start: Offset, /
    ) -> TimedRecord | None:
        """Find the first record, by offset, that is neither older than asked nor deleted."""
        ...

    async def newest(self, piece: PieceT_contra, log_start: Offset, /) -> TimedRecord | None:
        """Find the first of the records with the greatest time that are not deleted."""
        ...
