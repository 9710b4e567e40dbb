from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.segment.byte_cache import ENTRY_OVERHEAD_BYTES, ByteCache

SIZE = 1000
WHOLE = SIZE + ENTRY_OVERHEAD_BYTES


def cache_for(entries: int, young_share: Fraction = Fraction(1, 10)) -> ByteCache[int, str]:
    return ByteCache(entries * WHOLE, young_share=young_share)


def use(cache: ByteCache[int, str], key: int, at: int = 0) -> bool:
    """Read through the cache; say whether the value was there."""
    found = cache.find(key, at) is not None
    if not found:
        cache.add(key, str(key), SIZE, at=at)
    return found


def test_what_was_added_is_found() -> None:
    cache = cache_for(10)
    assert cache.add(1, "one", SIZE)
    assert cache.find(1) == "one"
    assert cache.find(2) is None


def test_an_entry_may_take_the_whole_budget_and_no_more() -> None:
    cache = cache_for(10)
    largest = 10 * WHOLE - ENTRY_OVERHEAD_BYTES
    assert cache.largest_bytes == largest
    assert not cache.add(1, "too large", largest + 1)
    assert 1 not in cache
    assert cache.add(2, "fits", largest)
    assert 2 in cache


@pytest.mark.parametrize("at", [None, 0])
@pytest.mark.parametrize("entries", [2, 5, 10])
def test_a_large_entry_stays_until_the_next_one_comes(entries: int, at: int | None) -> None:
    """Even if values that were read again and again take the whole budget."""
    cache = cache_for(10)
    for _ in range(3):
        for key in range(10):
            use(cache, key)
    large = entries * WHOLE - ENTRY_OVERHEAD_BYTES
    for key in range(100, 120):
        assert cache.add(key, "large", large, at=at)
        assert cache.find(key, 1) == "large"
        # Of the others so many stay as there is room for beside it.
        assert len(cache) == 1 + 10 - entries


def test_a_cache_without_a_budget_keeps_nothing() -> None:
    cache: ByteCache[int, str] = ByteCache(0)
    assert not cache.add(1, "one", 0)
    assert cache.size_bytes == 0


def test_a_value_that_is_here_already_is_not_counted_twice() -> None:
    cache = cache_for(10)
    cache.add(1, "one", SIZE)
    assert not cache.add(1, "again", SIZE)
    assert (cache.find(1), cache.size_bytes, len(cache)) == ("one", WHOLE, 1)


@pytest.mark.parametrize("young_share", [Fraction(1, 10), Fraction(1, 2)])
def test_a_hot_set_survives_a_long_scan(young_share: Fraction) -> None:
    cache = cache_for(40, young_share)
    hot = range(15)
    for _ in range(3):
        for key in hot:
            use(cache, key)
    for key in range(1000, 3000):
        use(cache, key)
    assert all(key in cache for key in hot)


def test_a_hot_set_survives_a_scan_that_is_repeated() -> None:
    cache = cache_for(40)
    hot = range(15)
    missed = 0
    for _ in range(5):
        for key in range(1000, 1300):
            use(cache, key)
            if key % 4 == 0:
                missed += not use(cache, key // 4 % 15)
    assert missed <= 2 * len(hot)


def test_several_steps_through_a_chunk_are_one_reading_of_it() -> None:
    cache = cache_for(40)
    for key in range(15):
        use(cache, key)
        use(cache, key)
    for key in range(1000, 2000):
        for at in (-400, -150, 100, 350, 600):
            use(cache, key, at)
    assert all(key in cache for key in range(15))


def test_a_second_consumer_of_a_chunk_makes_it_worth_keeping() -> None:
    cache = cache_for(20)
    for at in (0, 500):
        use(cache, 1, at)
    assert use(cache, 1, at=500)
    for key in range(1000, 1500):
        use(cache, key)
    assert 1 in cache


def test_what_comes_back_soon_after_it_left_goes_to_the_main_queue() -> None:
    cache = cache_for(10)
    for key in range(15):
        use(cache, key)
    assert 1 not in cache
    use(cache, 1)
    for key in range(100, 200):
        use(cache, key)
    assert 1 in cache


def test_what_was_read_ahead_outlives_what_was_read() -> None:
    cache = cache_for(10)
    cache.add(1, "ahead", SIZE)
    for key in range(100, 112):
        use(cache, key)
    assert 1 in cache
    for key in range(112, 130):
        use(cache, key)
    assert 1 not in cache


@given(
    st.integers(0, 20_000),
    st.fractions(Fraction(1, 20), Fraction(3, 4)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000), st.integers(-3, 3))),
)
def test_the_budget_is_never_exceeded(
    budget: int, share: Fraction, uses: list[tuple[int, int, int]]
) -> None:
    cache: ByteCache[int, int] = ByteCache(budget, young_share=share)
    sizes: dict[int, int] = {}
    for key, size, at in uses:
        found = cache.find(key, at)
        assert found is None or found == sizes[key]
        if cache.add(key, size, size, at=None if at < 0 else at):
            sizes[key] = size
        if at == 3:
            cache.discard(key)
            assert key not in cache
        assert cache.size_bytes <= budget
        kept = [key for key in sizes if key in cache]
        assert len(cache) == len(kept)
        assert cache.size_bytes == sum(sizes[key] + ENTRY_OVERHEAD_BYTES for key in kept)
