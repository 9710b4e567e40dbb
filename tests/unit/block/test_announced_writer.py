"""A writer that is announced: tagged ids, footers that tell, and the fence."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.faulty_control import Answers, Commit, loses_the_reply, loses_the_request
from tests.unit.block.rig import Rig, offsets, soon

from stratalog.batch.entry import EntryBatch
from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.errors import BlockInDoubtError, BrokerFencedError
from stratalog.block.footer import (
    TRAILER_BYTES,
    BlockFooter,
    EarlierAnswer,
    decode_footer,
    parse_trailer,
)
from stratalog.block.writer import BlockWriter
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.log.model import BlockToCommit
from stratalog.control.writers.errors import ControlPlaneWentBackError, WriterRefusedError
from stratalog.ids import Offset, writer_tag_of


@dataclass
class Desk:
    """A writer that seals each request into a block of its own."""

    rig: Rig
    announced: AnnouncedWriter
    refusals: list[WriterRefusedError] = field(default_factory=list)

    def writer(self) -> BlockWriter:
        return self.rig.writer(
            announced=self.announced, on_refused=self.refusals.append, max_bytes=1
        )

    async def footers(self) -> list[BlockFooter]:
        found = []
        for key in await self.rig.store.block_keys():
            data = bytes((await self.rig.store.get(key)).data)
            length, _ = parse_trailer(data[-TRAILER_BYTES:])
            found.append(decode_footer(data[-TRAILER_BYTES - length :]))
        return sorted(found, key=_sequence)

    async def answers(self) -> list[list[EarlierAnswer]]:
        """The answers that each block tells of its first partition."""
        return [[*footer.partitions[0].answers] for footer in await self.footers()]


def _sequence(footer: BlockFooter) -> int:
    assert footer.writer is not None
    return footer.writer.sequence


def run(sequence: int, base: int) -> EarlierAnswer:
    return EarlierAnswer(sequence=sequence, is_run=True, offsets=(Offset(base),))


def listed(sequence: int, *bases: int) -> EarlierAnswer:
    return EarlierAnswer(sequence=sequence, is_run=False, offsets=tuple(map(Offset, bases)))


@pytest.fixture
async def desk(rig: Rig) -> Desk:
    return Desk(rig, await rig.announced())


async def put(writer: BlockWriter, *batches: EntryBatch) -> list[int]:
    return offsets(await soon(writer.append(batches)))


async def test_blocks_carry_the_tag_and_the_counts_of_their_writer(desk: Desk) -> None:
    writer = desk.writer()
    for _ in range(3):
        await put(writer, desk.rig.batch())
    footers = await desk.footers()
    assert {writer_tag_of(footer.block_id) for footer in footers} == {desk.announced.tag}
    told = [(each.sequence, each.commits) for each in (f.writer for f in footers) if each]
    assert told == [(0, 0), (1, 1), (2, 2)]
    known = await desk.rig.control.inner.writers.known([desk.announced.tag])
    assert known[desk.announced.tag].commits == 3


async def test_a_block_tells_the_offsets_of_earlier_blocks_of_its_partitions_once(
    desk: Desk,
) -> None:
    writer, batch = desk.writer(), desk.rig.batch
    await put(writer, batch(records=2), batch(records=3))
    await put(writer, batch(1))
    await put(writer, batch())
    await put(writer, batch())
    assert await desk.answers() == [[], [], [run(0, 0)], [run(2, 5)]]


async def test_rejected_batches_and_duplicates_have_no_offset(desk: Desk) -> None:
    writer, batch = desk.writer(), desk.rig.batch
    await put(writer, batch(producer=1, sequence=0))
    await put(writer, batch(producer=1, sequence=0), batch(), batch(producer=1, sequence=7))
    await put(writer, batch())
    assert await desk.answers() == [[], [run(0, 0)], [listed(1, -1, 1, -1)]]


async def test_an_answer_is_told_again_if_no_row_keeps_the_block_that_told_it(desk: Desk) -> None:
    writer, batch = desk.writer(), desk.rig.batch
    await put(writer, batch(producer=1, sequence=0))
    await put(writer, batch(producer=1, sequence=0))
    await put(writer, batch())
    assert await desk.answers() == [[], [run(0, 0)], [run(0, 0)]]


async def test_an_answer_is_told_again_if_the_block_that_told_it_was_given_up(desk: Desk) -> None:
    writer, batch = desk.writer(), desk.rig.batch
    await put(writer, batch())
    desk.rig.control.commit_troubles.append(loses_the_request)
    with pytest.raises(Exception, match="did not happen"):
        await put(writer, batch())
    await put(writer, batch())
    assert await desk.answers() == [[], [run(0, 0)], [run(0, 0)]]
    assert not desk.refusals


async def test_a_commit_in_doubt_that_happened_is_counted(desk: Desk) -> None:
    writer = desk.writer()
    desk.rig.control.commit_troubles.append(loses_the_reply)
    assert await put(writer, desk.rig.batch()) == [0]
    assert await put(writer, desk.rig.batch()) == [1]
    assert desk.announced.commits == 2


async def test_a_doubt_that_cannot_be_settled_fences_nothing(desk: Desk) -> None:
    writer = desk.rig.writer(
        announced=desk.announced, on_refused=desk.refusals.append, max_bytes=1, retry_ms=0
    )
    desk.rig.control.commit_troubles.append(loses_the_reply)
    desk.rig.control.resolve_troubles.append(ControlUnavailableError("away"))
    with pytest.raises(BlockInDoubtError):
        await put(writer, desk.rig.batch())
    assert await put(writer, desk.rig.batch()) == [1]
    assert await put(writer, desk.rig.batch()) == [2]
    assert not desk.refusals


async def test_a_control_plane_that_went_back_fences_the_writer_before_an_offset_is_used_twice(
    desk: Desk,
) -> None:
    control = desk.rig.control.inner
    writer = desk.writer()
    assert await put(writer, desk.rig.batch()) == [0]
    assert await put(writer, desk.rig.batch()) == [1]
    # The control plane forgets the second commit.
    await control._database.write(
        lambda connection: connection.execute("UPDATE writers SET commits = 1")
    )
    with pytest.raises(BrokerFencedError, match="the control plane went back"):
        await put(writer, desk.rig.batch())
    with pytest.raises(BrokerFencedError):
        await put(writer, desk.rig.batch())
    assert await desk.rig.high_watermark() == 2
    assert [type(each) for each in desk.refusals] == [ControlPlaneWentBackError]
    halted = (await control.identity.cluster()).halted_reason
    assert halted is not None
    assert "went back" in halted


async def test_a_doubt_stays_a_doubt_if_the_control_plane_went_back(desk: Desk) -> None:
    control = desk.rig.control.inner
    writer = desk.writer()
    assert await put(writer, desk.rig.batch()) == [0]

    async def forgets(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
        await control._database.write(
            lambda connection: connection.execute("UPDATE writers SET commits = 0")
        )
        raise CommitInDoubtError("the control plane failed over")

    desk.rig.control.commit_troubles.append(forgets)
    with pytest.raises(BlockInDoubtError, match="the control plane went back"):
        await put(writer, desk.rig.batch())
    assert [type(each) for each in desk.refusals] == [ControlPlaneWentBackError]
    with pytest.raises(BrokerFencedError):
        await put(writer, desk.rig.batch())


async def test_a_fenced_writer_refuses_the_batches_that_it_holds(desk: Desk) -> None:
    writer = desk.rig.writer(announced=desk.announced, window_ms=60_000)
    held = writer.append([desk.rig.batch()])
    writer.fence("the store is another one")
    await writer.close()
    with pytest.raises(BrokerFencedError, match="the store is another one"):
        await soon(held)
    assert await desk.rig.high_watermark() == 0
