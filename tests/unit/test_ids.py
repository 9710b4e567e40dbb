"""Identifiers that carry a time and a writer."""

from hypothesis import given
from hypothesis import strategies as st

from stratalog.ids import (
    WriterTag,
    new_writer_tag,
    tagged_uuid7,
    uuid7_time_ms,
    writer_tag_of,
)

TAGS = st.integers(1, 2**40 - 1).map(WriterTag)


@given(st.integers(0, 2**48 - 1), TAGS, st.binary(min_size=10, max_size=10))
def test_a_tagged_id_is_a_version_7_id_that_carries_time_and_tag(
    now_ms: int, tag: WriterTag, random: bytes
) -> None:
    identifier = tagged_uuid7(now_ms, tag, lambda size: random[:size])
    assert identifier.version == 7
    assert identifier.variant == "specified in RFC 4122"
    assert uuid7_time_ms(identifier) == now_ms
    assert writer_tag_of(identifier) == tag


def test_thirty_four_bits_tell_the_ids_of_one_writer_and_moment_apart() -> None:
    none = tagged_uuid7(1, WriterTag(1), lambda size: bytes(size))
    every = tagged_uuid7(1, WriterTag(1), lambda size: b"\xff" * size)
    assert (none.int ^ every.int).bit_count() == 34


def test_a_tag_is_never_zero() -> None:
    assert new_writer_tag(lambda size: bytes(size)) != 0
    assert new_writer_tag(lambda size: b"\xff" * size) == 2**40 - 1
