from hypothesis import given
from hypothesis import strategies as st

from stratalog.topic.byte_shares import Wish, fair_shares

wishes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 1000)).map(
        lambda pair: Wish(pair[0], pair[0] + pair[1] if pair[0] else 0)
    ),
    max_size=20,
)


def test_everybody_gets_the_same_when_all_want_more() -> None:
    assert fair_shares([Wish(1, 32)] * 4, 32) == [8, 8, 8, 8]


def test_what_one_leaves_over_goes_to_the_others() -> None:
    assert fair_shares([Wish(2, 2), Wish(1, 100), Wish(1, 100)], 32) == [2, 15, 15]


def test_the_first_row_is_granted_even_beyond_the_budget() -> None:
    assert fair_shares([Wish(0, 0), Wish(500, 900), Wish(10, 10)], 100) == [0, 500, 0]


def test_partitions_beyond_the_budget_wait_for_their_turn() -> None:
    assert fair_shares([Wish(60, 60), Wish(60, 60), Wish(30, 30)], 100) == [60, 0, 30]


@given(wishes, st.integers(1, 2000))
def test_shares_stay_within_the_budget_and_the_wishes(asked: list[Wish], total: int) -> None:
    shares = fair_shares(asked, total)
    first = next((wish.first_bytes for wish in asked if wish.first_bytes), 0)
    assert sum(shares) <= max(total, first)
    for wish, share in zip(asked, shares, strict=True):
        assert share == 0 or wish.first_bytes <= share <= wish.all_bytes
    assert any(shares) == any(wish.first_bytes for wish in asked)
