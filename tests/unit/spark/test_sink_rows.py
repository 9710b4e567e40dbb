"""Rows on their way to their partitions."""

import pyarrow as pa
import pytest
from tests.unit.spark.sinks import plan, records_of, rows, topic

from stratalog.batch.errors import RowError
from stratalog.batch.header import Codec, TimestampType
from stratalog.batch.murmur2 import partition_of_key
from stratalog.spark.sink_model import SinkPlan
from stratalog.spark.sink_rows import RowEncoder, grouped
from stratalog.testing.clock import ManualClock

NOW_MS = 1_700_000_000_000


def encoder(given: SinkPlan, *, start: int = 0) -> RowEncoder:
    return RowEncoder(given, clock=ManualClock(NOW_MS), entropy=lambda size: start.to_bytes(size))


def test_keys_go_where_the_java_client_puts_them() -> None:
    keys = [b"key %d" % number for number in range(50)]
    found = records_of(encoder(plan(topic("orders", 7))).encode(rows(key=keys, value=keys)))
    for (_, partition), records in found.items():
        assert {partition_of_key(record.key or b"", 7) for record in records} == {partition}
    assert sum(len(records) for records in found.values()) == 50


def test_a_partition_that_is_given_wins_and_null_leaves_it_to_the_key() -> None:
    batch = rows(key=[b"a", b"a"], value=[b"1", b"2"], partition=[6, None])
    found = records_of(encoder(plan(topic("orders", 7))).encode(batch))
    assert [record.value for record in found["orders", 6]] == [b"1"]
    assert [record.value for record in found["orders", partition_of_key(b"a", 7)]] == [b"2"]


def test_rows_without_a_key_spread_over_all_partitions_evenly() -> None:
    batch = rows(value=[b"x" * 1024] * 640)
    found = records_of(encoder(plan(topic("orders", 4)), start=2).encode(batch))
    assert [len(found["orders", number]) for number in range(4)] == [160] * 4


def test_few_rows_without_a_key_stay_together_where_chance_has_put_them() -> None:
    found = records_of(encoder(plan(topic("orders", 4)), start=2).encode(rows(value=[b"x"] * 9)))
    assert set(found) == {("orders", 2)}


def test_rows_say_their_topics() -> None:
    given = plan(topic("a", 2), topic("b", 3), each=True)
    batch = rows(value=[b"1", b"2", b"3"], topic=["b", "a", "b"], partition=[2, 1, 2])
    found = records_of(encoder(given).encode(batch))
    read = {key: [record.value for record in records] for key, records in found.items()}
    assert read == {("a", 1): [b"2"], ("b", 2): [b"1", b"3"]}


def test_an_option_wins_over_the_rows_topics() -> None:
    given = plan(topic("a"), topic("b"))
    assert set(records_of(encoder(given).encode(rows(value=[b""], topic=["b"])))) == {("a", 0)}


def test_topics_that_come_later_are_met_later() -> None:
    writing = encoder(plan(topic("a", 2), topic("b", 2), each=True))
    for name, partition in (("a", 1), ("b", 0), ("a", 0)):
        batch = rows(value=[b"x"], topic=[name], partition=[partition])
        assert set(records_of(writing.encode(batch))) == {(name, partition)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["a", None]}, "row 1: column 'topic' is null"),
        ({"topic": ["a", "zzz"]}, "row 1: there is no topic 'zzz': create it"),
        ({"partition": [0, 2]}, "row 1: topic 'a' has no partition 2: it has 2, from 0 on"),
        ({"partition": [-1, 0]}, "row 0: topic 'a' has no partition -1"),
    ],
)
def test_rows_that_cannot_be_written_are_named(
    columns: dict[str, list[object]], message: str
) -> None:
    batch = rows(**{"value": [b"x", b"y"], "topic": ["a", "a"], **columns})
    with pytest.raises(RowError) as caught:
        encoder(plan(topic("a", 2), each=True)).encode(batch)
    assert message in str(caught.value)


def at(*times_ms: int | None) -> pa.RecordBatch:
    micros = [None if time is None else time * 1000 for time in times_ms]
    return rows(value=[b"x"] * len(micros), timestamp=micros)


def test_times_are_the_columns_and_now_where_it_has_none() -> None:
    found = records_of(encoder(plan(topic("orders"))).encode(at(5, None)))
    assert [record.timestamp for record in found["orders", 0]] == [5, NOW_MS]
    found = records_of(encoder(plan(topic("orders"))).encode(rows(value=[b"x"])))
    assert [record.timestamp for record in found["orders", 0]] == [NOW_MS]


def test_times_are_bound_as_a_broker_binds_them() -> None:
    strict = plan(
        topic(
            "orders",
            message_timestamp_before_max_ms="1000",
            message_timestamp_after_max_ms="500",
        )
    )
    writing = encoder(strict)
    writing.encode(at(NOW_MS - 1000, NOW_MS + 500))
    assert writing.untimely is None
    for outside in (NOW_MS - 1001, NOW_MS + 501):
        writing = encoder(strict)
        found = records_of(writing.encode(at(NOW_MS, outside)))
        assert len(found["orders", 0]) == 2, "whoever commits may know the batch"
        told = f"row 1: timestamp {outside} ms is outside of the range that topic 'orders' takes"
        assert told in str(writing.untimely)


def test_a_time_before_1970_is_in_no_topics_bounds() -> None:
    writing = encoder(plan(topic("orders")))
    writing.encode(at(None, -1))
    assert "row 1: timestamp -1 ms is outside" in str(writing.untimely)
    writing.encode(at(None, NOW_MS))
    assert writing.untimely is None, "it tells of the last group"


def test_topics_that_stamp_append_time_take_any_time_and_say_so() -> None:
    appending = topic(
        "orders", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="0"
    )
    [entry] = encoder(plan(appending)).encode(at(NOW_MS + 5))
    assert entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert entry.header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize(
    ("of_topic", "wanted", "used"),
    [
        ("producer", None, Codec.ZSTD),
        ("producer", Codec.NONE, Codec.NONE),
        ("producer", Codec.LZ4, Codec.LZ4),
        ("gzip", None, Codec.GZIP),
        ("gzip", Codec.LZ4, Codec.GZIP),
        ("uncompressed", Codec.LZ4, Codec.NONE),
    ],
)
def test_the_topics_own_compression_wins(of_topic: str, wanted: Codec | None, used: Codec) -> None:
    given = plan(topic("orders", compression_type=of_topic), codec=wanted)
    [entry] = encoder(given).encode(rows(value=[b"x" * 1000]))
    assert entry.header.codec_bits == used


def test_small_pieces_are_put_together_until_a_block_is_full() -> None:
    pieces = [rows(value=[b"x" * 96]) for _ in range(10)]
    size = pieces[0].nbytes
    joined = list(grouped(pieces, max_bytes=3 * size))
    assert [len(one) for one in joined] == [3, 3, 3, 1]
    assert [len(one) for one in grouped(pieces, max_bytes=3 * size - 1)] == [2] * 5
    assert [len(one) for one in grouped(pieces, max_rows=4)] == [4, 4, 2]


def test_large_pieces_are_cut_and_no_row_is_lost() -> None:
    numbers = [b"%4d" % number for number in range(1000)]
    cut = list(grouped([rows(value=numbers)], max_bytes=2500))
    assert len(cut) > 2
    assert all(one.nbytes <= 2600 for one in cut)
    assert [value for one in cut for value in one.column("value").to_pylist()] == numbers
    assert [len(one) for one in grouped([rows(value=numbers)], max_rows=400)] == [334, 334, 332]


def test_pieces_without_rows_make_no_block() -> None:
    assert list(grouped([rows(value=[]), rows(value=[])])) == []
