"""Records, batches and their options, drawn at random."""

from hypothesis import strategies as st

from stratalog.batch.header import Codec
from stratalog.batch.records import Record

codecs = st.sampled_from(list(Codec))
timestamps = st.one_of(st.integers(0, 2**42), st.integers(1_700_000_000_000, 1_700_000_100_000))
contents = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(lambda part, times: part * times, st.binary(max_size=10), st.integers(0, 2000)),
)
headers = st.lists(
    st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=10))), max_size=3
).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 8, base_offset: int = 0) -> list[Record]:
    """Records with dense offsets, as a producer makes them."""
    parts = draw(
        st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=max_size)
    )
    return [Record(base_offset + index, *part) for index, part in enumerate(parts)]


producers = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)
"""Id, epoch and base sequence."""
