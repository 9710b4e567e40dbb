"""The Java client's hash, by the vectors of Kafka's own tests."""

import pytest

from stratalog.batch.murmur2 import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_keys_hash_as_in_kafkas_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@pytest.mark.parametrize(("key", "partition"), [(b"21", 973932308), (b"abc", 479470107)])
def test_the_sign_is_cut_off_and_not_turned(key: bytes, partition: int) -> None:
    """Java's `toPositive` clears the sign bit; the absolute value would be another partition."""
    positive = partition if key == b"abc" else 2**31 - partition
    assert partition_of_key(key, 1000) == positive % 1000
