import asyncio
from collections.abc import Sequence

import pytest
from tests.support.appends import durable
from tests.unit.batch.edits import edit, with_body
from tests.unit.block.rig import soon
from tests.unit.topic.rig import NOW_MS, TopicRig, batch, records

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidTimestampError,
    record_faults_of,
)
from stratalog.batch.header import Codec, parse_header
from stratalog.batch.records import Record
from stratalog.block.errors import BlockFailedError, BrokerStoppingError
from stratalog.block.placed import Placed
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.model import CommitAnswer, CommitOutcome, WriteTier
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import TopicConfigError
from stratalog.ids import Offset
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.faulty import Fault
from stratalog.settings import MIB
from stratalog.topic.entry_checks import EntryLimits
from stratalog.topic.errors import (
    FencedProducerError,
    OutOfOrderSequenceError,
    ReadOnlyTopicError,
    TransactionsUnsupportedError,
)

DAY_MS = 24 * 60 * 60 * 1000


def numbered(sequence: int, *, epoch: int = 0) -> bytes:
    records = [Record(0, NOW_MS, None, b"value")]
    return build_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


async def test_an_append_is_answered_with_its_first_offset(rig: TopicRig) -> None:
    assert (await rig.append(0, batch(b"a", b"b"), batch(b"c"))).base_offset == 0
    written = await rig.append(0, batch(b"d"))
    assert written.base_offset == 3
    assert written.append_time_ms == -1
    assert written.log_start == 0
    assert records(await rig.read_one(0, 0)) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


async def test_a_topic_that_stamps_its_own_time_answers_with_it(rig: TopicRig) -> None:
    await rig.configure(message_timestamp_type="LogAppendTime")
    before_ms = (await rig.append(0, batch(b"a"))).append_time_ms
    assert before_ms >= NOW_MS
    parts = (await rig.read_one(0, 0)).parts
    assert parse_header(b"".join(parts)).max_timestamp == before_ms


async def test_a_topic_whose_configs_cannot_be_read_refuses_what_comes(rig: TopicRig) -> None:
    await rig.configure(max_message_bytes="much")
    refused = await rig.append(0, batch(b"a"))
    assert isinstance(refused.error, TopicConfigError)
    assert "max.message.bytes" in str(refused.error)


async def test_a_bad_batch_fails_its_partition_and_nothing_else(rig: TopicRig) -> None:
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    good, bad, other = await rig.append_all(
        {0: batch(b"a"), 1: batch(b"b") + bytes(broken), 2: batch(b"c")}
    )
    assert (good.error, good.base_offset) == (None, 0)
    assert isinstance(bad.error, CrcMismatchError)
    assert (other.error, other.base_offset) == (None, 0)
    assert records(await rig.read_one(1, 0)) == [], "not even the good batch before the bad one"


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 10, batch(b"a")[:-1]], ids=["nothing", "zeros", "cut off"]
)
async def test_what_is_no_whole_batch_is_refused(rig: TopicRig, data: bytes) -> None:
    assert isinstance((await rig.append(0, data)).error, BatchDamagedError)


async def test_a_transactions_batch_is_refused(rig: TopicRig) -> None:
    data = build_batch(
        [Record(0, NOW_MS, None, b"value")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert isinstance((await rig.append(0, data)).error, TransactionsUnsupportedError)


async def test_a_batch_may_be_as_large_as_the_topic_allows(rig: TopicRig) -> None:
    data = batch(b"x" * 100)
    await rig.configure(max_message_bytes=str(len(data)))
    assert (await rig.append(0, data)).error is None
    await rig.configure(max_message_bytes=str(len(data) - 1))
    assert isinstance((await rig.append(0, data)).error, BatchTooLargeError)


async def test_timestamps_may_differ_from_ours_by_as_much_as_the_topic_allows(
    rig: TopicRig,
) -> None:
    await rig.configure(message_timestamp_after_max_ms=str(DAY_MS))
    assert (await rig.append(0, batch(b"a", times=[NOW_MS + DAY_MS // 2]))).error is None
    late = await rig.append(0, batch(b"a", times=[NOW_MS + 2 * DAY_MS]))
    assert isinstance(late.error, InvalidTimestampError)


@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_batch_that_no_reader_can_decode_stays_out(
    rig: TopicRig, codec: Codec, count: int
) -> None:
    """Also the beginning of its partition's part, and nothing of other partitions."""
    await rig.configure(max_message_bytes=str(2**30))
    values = [Record(place, NOW_MS, None, b"value") for place in range(count)]
    many = build_batch(values, codec=codec)
    hostile = edit(many, records_count=count + 1, last_offset_delta=count)
    bad, good = await rig.append_all({0: many + hostile, 1: many})
    assert isinstance(bad.error, BatchDamagedError)
    assert record_faults_of(bad.error)[0].record == count
    assert good.error is None
    assert records(await rig.read_one(0, 0)) == []


async def test_a_topic_may_accept_batches_that_no_reader_can_decode(rig: TopicRig) -> None:
    await rig.configure(**{"stratalog.accept.undecodable.batches": "true"})
    hostile = edit(batch(b"a"), records_count=2, last_offset_delta=1)
    assert (await rig.append(0, with_body(hostile, b"\xff" * 21))).error is None
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    assert isinstance((await rig.append(0, bytes(broken))).error, CrcMismatchError)
    untimed = edit(batch(b"timed", times=[NOW_MS - 5]), max_timestamp=-1)
    assert (await rig.append(1, untimed)).error is None
    assert parse_header(b"".join((await rig.read_one(1, 0)).parts)).max_timestamp == NOW_MS - 5
    hopeless = edit(with_body(hostile, b"\xff" * 21), max_timestamp=-1)
    assert (await rig.append(2, hopeless)).error is None


@pytest.mark.parametrize("stated", [-1, NOW_MS - 4, NOW_MS + 1000], ids=["none", "low", "high"])
async def test_the_greatest_timestamp_of_a_batch_is_put_right(rig: TopicRig, stated: int) -> None:
    stating = edit(batch(b"a", b"b", times=[NOW_MS - 5, NOW_MS]), max_timestamp=stated)
    await rig.append(0, stating)
    answer = await rig.read_one(0, 0)
    assert parse_header(b"".join(answer.parts)).max_timestamp == NOW_MS
    assert records(answer) == [(0, b"a"), (1, b"b")]


async def test_every_record_lies_inside_the_bounds_of_its_topic(rig: TopicRig) -> None:
    await rig.configure(message_timestamp_after_max_ms=str(DAY_MS))
    late = batch(b"a", b"b", b"c", times=[NOW_MS, NOW_MS + 2 * DAY_MS, NOW_MS])
    refused = (await rig.append(0, edit(late, max_timestamp=NOW_MS))).error
    assert isinstance(refused, InvalidTimestampError)
    assert [fault.record for fault in record_faults_of(refused)] == [1]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
async def test_a_small_batch_that_grows_beyond_its_bounds_is_refused(
    rig: TopicRig, codec: Codec
) -> None:
    """First beyond the bound of the loop, where it is only handed over, then beyond the others."""
    rig.appender = rig.appender_with(EntryLimits(max_ratio=1, max_decompressed_bytes=8 * MIB))
    await rig.configure(max_message_bytes=str(2**30))

    def bomb(size_bytes: int) -> bytes:
        return build_batch([Record(0, NOW_MS, None, bytes(size_bytes))], codec=codec)

    assert (await rig.append(0, bomb(100_000))).error is None
    assert (await rig.append(0, bomb(4 * MIB - 100))).error is None
    refused = await rig.append(0, bomb(4 * MIB))
    assert isinstance(refused.error, DecompressedTooLargeError)


async def test_a_decompressed_batch_has_an_absolute_bound(rig: TopicRig) -> None:
    rig.appender = rig.appender_with(EntryLimits(max_decompressed_bytes=1000))
    many = [Record(0, NOW_MS, None, bytes(900)), Record(1, NOW_MS, None, bytes(900))]
    assert (await rig.append(0, build_batch(many[:1], codec=Codec.LZ4))).error is None
    refused = await rig.append(0, build_batch(many, codec=Codec.LZ4))
    assert isinstance(refused.error, DecompressedTooLargeError)


async def test_batches_are_compressed_as_the_topic_wants_them(rig: TopicRig) -> None:
    await rig.configure(compression_type="zstd")
    await rig.append(0, batch(b"a" * 1000), batch(b"b"))
    answer = await rig.read_one(0, 0)
    assert parse_header(b"".join(answer.parts)).codec_bits == Codec.ZSTD
    assert records(answer) == [(0, b"a" * 1000), (1, b"b")]


async def test_a_partition_that_was_added_elsewhere_is_found(rig: TopicRig) -> None:
    await rig.catalog.named([rig.topic.name])
    await rig.control.inner.topics.add_partitions(rig.topic.id, partition_count=5)
    assert rig.topic.partition_count == 3, "what this broker still thinks"
    assert (await rig.append(4, batch(b"a"))).base_offset == 0
    cached = rig.catalog.cached(rig.topic.name)
    assert cached is not None
    assert cached.partition_count == 5


@pytest.mark.parametrize("partition", [-1, 3])
async def test_a_partition_beyond_the_topic_is_unknown(rig: TopicRig, partition: int) -> None:
    good, bad = await rig.append_all({0: batch(b"a"), partition: batch(b"b")})
    assert good.error is None
    assert isinstance(bad.error, UnknownTopicError)


async def test_a_topic_that_was_deleted_elsewhere_is_forgotten_when_a_commit_finds_out(
    rig: TopicRig,
) -> None:
    await rig.catalog.named([rig.topic.name])
    await rig.control.inner.topics.delete(rig.topic.id)
    assert isinstance((await rig.append(0, batch(b"a"))).error, UnknownTopicError)
    assert rig.catalog.cached(rig.topic.name) is None


async def test_a_repeated_batch_is_answered_with_its_first_offset(rig: TopicRig) -> None:
    await rig.append(0, batch(b"before"))
    assert [(await rig.append(0, numbered(0))).base_offset for _ in range(2)] == [1, 1]


async def test_a_gap_in_a_producers_sequence_is_told(rig: TopicRig) -> None:
    await rig.append(0, numbered(0))
    assert isinstance((await rig.append(0, numbered(2))).error, OutOfOrderSequenceError)


async def test_an_older_instance_of_a_producer_is_told(rig: TopicRig) -> None:
    await rig.append(0, numbered(0, epoch=1))
    assert isinstance((await rig.append(0, numbered(0, epoch=0))).error, FencedProducerError)


async def test_a_partition_that_takes_no_writes_tells_what_to_do_about_it(rig: TopicRig) -> None:
    rig.damage("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    here, elsewhere = await rig.append_all({0: batch(b"a"), 1: batch(b"b")})
    assert here.error is None
    assert isinstance(elsewhere.error, ReadOnlyTopicError)
    assert "stratalog topic migrate events" in str(elsewhere.error)


async def test_trouble_with_the_store_is_told_to_every_partition_but_those_that_were_wrong(
    rig: TopicRig,
) -> None:
    rig.faults.remaining.append(("put", Fault.UNAVAILABLE))
    lost, wrong = await rig.append_all({0: batch(b"a"), 1: b"nonsense"})
    assert isinstance(lost.error, StoreUnavailableError)
    assert isinstance(wrong.error, BatchDamagedError)


async def test_a_stopping_broker_takes_nothing(rig: TopicRig) -> None:
    await rig.writer.close()
    assert isinstance((await rig.append(0, batch(b"a"))).error, BrokerStoppingError)


async def test_appends_keep_the_order_of_their_calls(rig: TopicRig) -> None:
    """Also if the first one has to be compressed, which takes its time on another thread."""
    await rig.configure(compression_type="gzip")
    first = await rig.place({0: batch(*[b"x" * 1000] * 100)})
    await rig.configure(compression_type="producer")
    second = await rig.place({0: batch(b"y")})
    answers = [*await soon(durable(first)), *await soon(durable(second))]
    assert [answer.base_offset for answer in answers] == [0, 100]


class MemoryTier:
    """A tier that keeps the appended batches, and answers at once."""

    def __init__(self) -> None:
        self.batches: list[EntryBatch] = []

    def refused(self, batches: Sequence[EntryBatch]) -> None:
        """It checks no sequences."""

    def append(self, batches: Sequence[EntryBatch], sender: int) -> Placed:
        committed: asyncio.Future[Sequence[CommitAnswer]] = (
            asyncio.get_running_loop().create_future()
        )
        first = len(self.batches)
        self.batches += batches
        committed.set_result(
            [
                CommitAnswer(CommitOutcome.ACCEPTED, Offset(first + place), log_start=Offset(0))
                for place in range(len(batches))
            ]
        )
        return Placed(committed, range(len(batches)))


async def test_each_partition_of_a_request_goes_to_the_tier_that_it_writes_to(
    rig: TopicRig,
) -> None:
    rig.damage("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    local = MemoryTier()
    rig.appenders[WriteTier.LOCAL] = local
    await rig.append(0, batch(b"before"))
    written = await rig.append_all({1: batch(b"a"), 0: batch(b"b"), 2: batch(b"c")})
    assert [one.error for one in written] == [None, None, None]
    assert [one.base_offset for one in written] == [0, 1, 0]
    assert [one.partition for one in local.batches] == [1]


async def test_a_tier_without_an_appender_is_refused_before_anything_is_stored(
    rig: TopicRig,
) -> None:
    rig.damage("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    assert isinstance((await rig.append(1, batch(b"a"))).error, ReadOnlyTopicError)
    assert [info async for info in rig.store.list("")] == []


async def test_a_partition_is_written_as_soon_as_its_tier_changes(rig: TopicRig) -> None:
    rig.damage("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    assert isinstance((await rig.append(1, batch(b"a"))).error, ReadOnlyTopicError)
    rig.damage("UPDATE partitions SET write_tier = 'block' WHERE partition = 1")
    assert (await rig.append(1, batch(b"a"))).base_offset == 0


async def test_writes_to_a_known_topic_ask_the_control_plane_nothing_before_the_commit(
    rig: TopicRig,
) -> None:
    await rig.catalog.named([rig.topic.name])
    await rig.append_all({0: batch(b"a"), 1: batch(b"b")})
    await rig.append(2, batch(b"c"))
    assert set(rig.control.calls) == {"topics.named", "log.commit_blocks"}
    assert rig.control.calls.count("topics.named") == 1


async def test_a_request_asks_once_for_a_topic_that_refuses_several_of_its_partitions(
    rig: TopicRig,
) -> None:
    rig.damage("UPDATE partitions SET write_tier = 'local'")
    await rig.catalog.refreshed([rig.topic.name])
    rig.control.calls.clear()
    written = await rig.append_all({0: batch(b"a"), 1: batch(b"b"), 2: batch(b"c")})
    assert all(isinstance(one.error, ReadOnlyTopicError) for one in written)
    assert rig.control.calls == ["topics.named"]


async def test_a_request_waits_once_for_a_control_plane_that_is_away(rig: TopicRig) -> None:
    await rig.catalog.named([rig.topic.name])
    rig.control.is_away = True
    rig.control.calls.clear()
    written = await rig.append_all({7: batch(b"a"), 8: batch(b"b"), 9: batch(b"c")})
    assert all(isinstance(one.error, ControlUnavailableError) for one in written)
    assert rig.control.calls == ["topics.named"]


async def test_a_tier_that_has_changed_since_it_was_remembered_is_asked_for_again(
    rig: TopicRig,
) -> None:
    assert (await rig.append(1, batch(b"a"))).base_offset == 0
    rig.damage("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    assert isinstance((await rig.append(1, batch(b"b"))).error, ReadOnlyTopicError)
    local = MemoryTier()
    rig.appenders[WriteTier.LOCAL] = local
    assert (await rig.append(1, batch(b"b"))).error is None
    assert len(local.batches) == 1


async def test_a_batch_does_not_take_the_place_of_one_whose_partition_could_not_be_looked_up(
    rig: TopicRig,
) -> None:
    await rig.catalog.named([rig.topic.name])
    await rig.control.inner.topics.add_partitions(rig.topic.id, partition_count=5)
    rig.control.is_away = True
    assert isinstance((await rig.append(4, numbered(0))).error, ControlUnavailableError)
    rig.control.is_away = False
    assert isinstance((await rig.append(4, numbered(1))).error, BlockFailedError)
    assert (await rig.append(4, numbered(0))).base_offset == 0
    assert (await rig.append(4, numbered(1))).base_offset == 1
