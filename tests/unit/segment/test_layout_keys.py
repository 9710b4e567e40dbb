from uuid import UUID

import pytest
from tests.unit.segment.layout_golden import KEY_BASE, PREFIX, SEGMENT_ID, TOPIC_ID

from stratalog.ids import Offset, PartitionIndex, kafka_base64
from stratalog.segment.keys import (
    LOG_SUFFIX,
    SUFFIXES,
    SegmentKey,
    parse_segment_key,
    parse_uuid_text,
    segment_key_base,
    segment_keys,
)


def base(topic: str = "topic1", partition: int = 7, offset: int = 5000) -> str:
    return segment_key_base(
        PREFIX, topic, TOPIC_ID, PartitionIndex(partition), Offset(offset), SEGMENT_ID
    )


def test_a_key_is_the_one_that_the_plugin_makes() -> None:
    assert base() == KEY_BASE


def test_the_documented_example_of_the_plugin_is_understood() -> None:
    key = (
        "someprefix/topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
    )
    parsed = parse_segment_key(key, "someprefix/")
    assert parsed is not None
    assert parsed.topic_name == "topic"
    assert kafka_base64(parsed.topic_id) == "MWJ6FHTfRYy67jzwZdeqSQ"
    assert (parsed.partition, parsed.base_offset) == (7, 1234)
    assert kafka_base64(parsed.segment_id) == "tqimKeZwStOEOwRzT3L5oQ"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("topic", ["a", "with-dashes-lZ6vvmajTWKDBUTV6SQAtQ", "dots.and_more"])
@pytest.mark.parametrize(("partition", "offset"), [(0, 0), (2**31 - 1, 2**63 - 1)])
def test_a_key_says_what_it_was_made_of(
    topic: str, partition: int, offset: int, suffix: str
) -> None:
    assert parse_segment_key(base(topic, partition, offset) + suffix, PREFIX) == SegmentKey(
        topic_name=topic,
        topic_id=TOPIC_ID,
        partition=PartitionIndex(partition),
        base_offset=Offset(offset),
        segment_id=SEGMENT_ID,
        suffix=suffix,
    )


@pytest.mark.parametrize(
    "key",
    [
        KEY_BASE,
        KEY_BASE + ".txt",
        KEY_BASE + ".log.tmp",
        KEY_BASE + ".log\n",
        KEY_BASE.removeprefix("pfx/") + LOG_SUFFIX,
        "other/" + KEY_BASE + LOG_SUFFIX,
        KEY_BASE.replace("/7/", "/07/") + LOG_SUFFIX,
        KEY_BASE.replace("/7/", "/-7/") + LOG_SUFFIX,
        KEY_BASE.replace("/7/", f"/{2**31}/") + LOG_SUFFIX,
        KEY_BASE.replace("/7/", "/٧/") + LOG_SUFFIX,
        KEY_BASE.replace("/7/", "/7/x/") + LOG_SUFFIX,
        KEY_BASE.replace("00000000000000005000", "5000") + LOG_SUFFIX,
        KEY_BASE.replace("00000000000000005000", f"{2**63:020d}") + LOG_SUFFIX,
        KEY_BASE.replace("adh9f8BMS4anaUnD8KWfWg", "adh9f8BMS4anaUnD8KWfWh") + LOG_SUFFIX,
        KEY_BASE.replace("lZ6vvmajTWKDBUTV6SQAtQ", "lZ6vvmajTWKDBUTV6SQAtR") + LOG_SUFFIX,
        KEY_BASE.replace("topic1-", "") + LOG_SUFFIX,
        KEY_BASE.replace("topic1", "topic 1") + LOG_SUFFIX,
        "",
    ],
)
def test_a_key_that_we_do_not_make_is_left_alone(key: str) -> None:
    assert parse_segment_key(key, PREFIX) is None


def test_a_prefix_need_not_be_a_folder() -> None:
    key = segment_key_base("a-", "t", TOPIC_ID, PartitionIndex(0), Offset(0), SEGMENT_ID)
    assert key.startswith("a-t-")
    parsed = parse_segment_key(key + LOG_SUFFIX, "a-")
    assert parsed is not None
    assert parsed.topic_name == "t"


def test_all_keys_of_a_segment_end_with_the_manifest() -> None:
    assert segment_keys("k") == ["k.log", "k.indexes", "k.rsm-manifest"]


@pytest.mark.parametrize("number", [0, 1, 2**128 - 1, TOPIC_ID.int])
def test_ids_are_read_as_kafka_prints_them(number: int) -> None:
    assert parse_uuid_text(kafka_base64(UUID(int=number))) == UUID(int=number)


@pytest.mark.parametrize("text", ["", "abc", "lZ6vvmajTWKDBUTV6SQAtQ==", "lZ6vvmajTWKDBUTV6SQAt!"])
def test_other_texts_are_no_ids(text: str) -> None:
    assert parse_uuid_text(text) is None
