"""A partition whose log lies in three tiers, one of which is registered by the test alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from tests.unit.topic.rig import TopicRig, batch, records

from stratalog.batch.frames import iter_batches
from stratalog.control.log.model import Coordinates, FoundBatches
from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import Offset, PartitionIndex, TopicId
from stratalog.pieces import Piece, PiecesRead, PiecesWanted, Start, Tier
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.tiers import Tiers

COUNT = 9
REMOTE_END, LOCAL_END = 3, 6


class FileGoneError(StratalogError):
    """A local file was removed after it was looked up."""


class FileDamagedError(DamagedError):
    """A local file lacks records that it should hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    last_offset: Offset
    max_timestamp: int
    log: bytes
    failure: StratalogError | None = None
    tier: Tier = Tier.LOCAL

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)

    @property
    def size_bytes(self) -> int:
        return len(self.log)


class LocalReader:
    stale_errors: ClassVar[tuple[type[StratalogError], ...]] = (FileGoneError,)

    async def locate(
        self, wanted: Sequence[PiecesWanted[LocalFile]]
    ) -> list[Start | StratalogError]:
        return [
            Start(
                size_bytes=sum(one.size_bytes for one in want.pieces),
                first_bytes=want.pieces[0].size_bytes,
            )
            for want in wanted
        ]

    async def read(self, wanted: Sequence[PiecesWanted[LocalFile]]) -> list[PiecesRead]:
        return [_read(want) for want in wanted]


def _read(want: PiecesWanted[LocalFile]) -> PiecesRead:
    answer = PiecesRead(next_offset=want.offset)
    for file in want.pieces:
        if file.failure is not None:
            answer.error = file.failure
            return answer
        for position, header in iter_batches(file.log):
            if header.last_offset < want.offset:
                continue
            data = file.log[position : position + header.size_bytes]
            if answer.parts and answer.size_bytes + len(data) > want.max_bytes:
                return answer
            answer.parts.append(data)
            answer.size_bytes += len(data)
            answer.next_offset = Offset(header.last_offset + 1)
    answer.ended = True
    return answer


class ThreeTiers:
    """Records 0 to 8, a batch each: three in a segment, three in local files, three in blocks."""

    def __init__(self, rig: TopicRig) -> None:
        self.rig = rig
        self.files: dict[int, LocalFile] = {}
        self.broken: list[StratalogError] = []
        """Failures of the local files in the looks to come, one for each look."""

    async def fill(self) -> None:
        rig = self.rig
        for value in range(COUNT):
            await rig.append(0, batch(b"%d" % value))
        await rig.convert(0, up_to=REMOTE_END)
        [found] = await rig.control.inner.log.find_batches([rig.span(0, REMOTE_END)])
        for row in found.rows[: LOCAL_END - REMOTE_END]:
            want = PiecesWanted(offset=row.base_offset, max_bytes=1 << 20, pieces=[row])
            [read] = await rig.blocks.read([want])
            self.files[row.base_offset] = LocalFile(
                topic_id=row.topic_id,
                partition=row.partition,
                base_offset=row.base_offset,
                last_offset=row.last_offset,
                max_timestamp=row.max_timestamp,
                log=b"".join(read.parts),
            )
        rig.control.after_look = _Always(self._moved)

    async def _moved(self, found: list[FoundBatches]) -> list[FoundBatches]:
        failure = self.broken.pop(0) if self.broken else None
        return [replace(one, pieces=list(self._pieces(one.pieces, failure))) for one in found]

    def _pieces(self, pieces: Sequence[Piece], failure: StratalogError | None) -> Iterator[Piece]:
        for piece in pieces:
            if isinstance(piece, Coordinates) and piece.base_offset in self.files:
                yield replace(self.files[piece.base_offset], failure=failure)
            else:
                yield piece

    async def read(self, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
        [answer] = await self.rig.read(self.rig.span(0, offset, max_bytes))
        assert answer.error is None
        return records(answer)


class _Always(list):  # type: ignore[type-arg]
    """A list of steps that never runs out."""

    def __init__(self, step: object) -> None:
        super().__init__([step])

    def pop(self, _: object = 0) -> object:
        return self[0]


@pytest.fixture
async def three(rig: TopicRig) -> ThreeTiers:
    both = open_tiers(blocks=rig.blocks, segments=rig.segments.reader)
    rig.reader._tiers = Tiers({**both._readers, Tier.LOCAL: LocalReader()})
    made = ThreeTiers(rig)
    await made.fill()
    return made


def expected(first: int, end: int = COUNT) -> list[tuple[int, bytes]]:
    return [(value, b"%d" % value) for value in range(first, end)]


@pytest.mark.parametrize("offset", range(COUNT))
async def test_three_tiers_read_as_one_dense_sequence_from_every_offset(
    three: ThreeTiers, offset: int
) -> None:
    assert await three.read(offset) == expected(offset)


@pytest.mark.parametrize("batches", range(1, COUNT + 1))
async def test_a_budget_ends_the_answer_in_whichever_tier_it_is_used_up(
    three: ThreeTiers, batches: int
) -> None:
    size = len(batch(b"0"))
    assert await three.read(0, batches * size) == expected(0, batches)
    assert await three.read(0, batches * size + size // 2) == expected(0, min(batches, COUNT))


async def test_a_reader_with_a_small_budget_crosses_every_border(three: ThreeTiers) -> None:
    offset, seen = 0, []
    while offset < COUNT:
        found = await three.read(offset, 1)
        assert len(found) == 1
        seen += found
        offset = found[-1][0] + 1
    assert seen == expected(0)


async def test_a_stale_piece_of_any_tier_is_resolved_once_more(three: ThreeTiers) -> None:
    three.broken = [FileGoneError("removed")]
    assert await three.read(REMOTE_END + 1) == expected(REMOTE_END + 1)
    three.broken = [FileGoneError("removed"), FileGoneError("removed again")]
    [answer] = await three.rig.read(three.rig.span(0, REMOTE_END + 1))
    assert isinstance(answer.error, FileGoneError)


async def test_a_tier_that_fails_in_the_middle_ends_the_answer_before_it(
    three: ThreeTiers,
) -> None:
    three.broken = [FileDamagedError("bad bytes")] * 2
    assert await three.read(0) == expected(0, REMOTE_END)
    [answer] = await three.rig.read(three.rig.span(0, REMOTE_END))
    assert isinstance(answer.error, FileDamagedError)
    assert not answer.parts


async def test_a_tier_without_a_reader_ends_the_answer_before_it(three: ThreeTiers) -> None:
    rig = three.rig
    rig.reader._tiers = open_tiers(blocks=rig.blocks, segments=rig.segments.reader)
    assert await three.read(0) == expected(0, REMOTE_END)
    [answer] = await rig.read(rig.span(0, REMOTE_END))
    assert "local tier" in str(answer.error)
    assert await three.read(LOCAL_END) == expected(LOCAL_END)
