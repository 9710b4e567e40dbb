"""The offsets of a stream, and the division of a batch among partitions."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.admin.errors import InvalidTopicNameError
from stratalog.admin.topic_names import check_topic_name
from stratalog.ids import Offset, TopicId
from stratalog.spark.offsets import (
    Offsets,
    admit,
    from_json,
    ids_in,
    lag,
    replaced_topics,
    start_in,
    to_json,
)


def at(*numbers: int) -> Offsets:
    return {("t", partition): Offset(number) for partition, number in enumerate(numbers)}


def test_a_checkpoint_has_them_as_the_kafka_source_writes_them() -> None:
    offsets = {("b", 10): Offset(1), ("b", 9): Offset(2), ("a", 0): Offset(3)}
    text = json.dumps(to_json(offsets))
    assert text == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert from_json(json.loads(text)) == offsets


def test_ids_are_those_of_the_topics_that_have_offsets_in_order() -> None:
    ids = {name: TopicId(UUID(int=number)) for number, name in enumerate("cba")}
    offsets = {("b", 1): Offset(1), ("a", 0): Offset(3), ("d", 0): Offset(4)}
    zeros = "00000000-0000-0000-0000-00000000000"
    document = to_json(offsets, ids, start=to_json(at(7)))
    assert json.dumps(document) == (
        f'{{"@start": {{"t": {{"0": 7}}}}, "@ids": {{"a": "{zeros}2", "b": "{zeros}1"}},'
        ' "a": {"0": 3}, "b": {"1": 1}, "d": {"0": 4}}'
    )
    assert from_json(document) == offsets
    assert ids_in(document) == {"a": ids["a"], "b": ids["b"]}
    assert start_in(document) == {"t": {"0": 7}}
    assert ids_in({"t": {"0": 7}}) == {}


@pytest.mark.parametrize("name", ["@start", "@ids", "@"])
def test_no_topic_can_be_called_what_a_checkpoint_has_beside_topics(name: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        check_topic_name(name)


def test_names_stand_for_other_topics_only_if_both_ids_are_known() -> None:
    one, other = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    before, after = {"a": one, "b": one, "c": one}, {"a": one, "b": other, "d": one}
    assert replaced_topics(before, after) == ["b"]


def test_lag_counts_partitions_that_have_something_only() -> None:
    assert lag(at(5, 5, 5), at(5, 7, 4, 9)) == {("t", 1): 2}


def test_what_fits_is_taken_whole() -> None:
    assert admit(at(0, 0), at(3, 7), 10) == at(3, 7)
    assert admit(at(0, 0), at(3, 7), 9) != at(3, 7)


def test_partitions_share_in_proportion_to_what_they_have() -> None:
    assert admit(at(100, 0), at(400, 100), 40) == at(130, 10)


def test_no_partition_starves_while_there_is_an_offset_for_each() -> None:
    assert admit(at(0, 0, 0), at(1_000_000, 1, 1), 3) == at(1, 1, 1)
    assert admit(at(0, 0, 0), at(1_000_000, 1, 1), 2) == at(2, 0, 0)


def test_partitions_that_were_cut_short_do_not_take_part() -> None:
    assert admit(at(50, 0), at(10, 100), 20) == at(10, 20)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(1, 10**6))
def test_a_batch_takes_exactly_its_limit_or_all(sizes: list[int], most: int) -> None:
    start = at(*(7 for _ in sizes))
    end = at(*(7 + size for size in sizes))
    taken = admit(start, end, most)
    assert sum(lag(start, taken).values()) == min(most, sum(sizes))
    assert all(start[key] <= taken[key] <= end[key] for key in end)
