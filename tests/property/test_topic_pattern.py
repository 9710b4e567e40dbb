"""Our matcher of topic patterns against the standard library's."""

import re
from contextlib import suppress

from hypothesis import assume, given
from hypothesis import strategies as st

from stratalog.groups.consumer.errors import InvalidPatternError
from stratalog.groups.consumer.pattern import TopicPattern

atoms = st.sampled_from(["a", "b", ".", "-", r"\.", "[ab]", "[^a]", r"\w", "[a-c-]", "^", "$"])
signs = st.sampled_from(["", "*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, signs).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


patterns = st.recursive(st.tuples(atoms, signs).map("".join), _larger, max_leaves=8)


@given(pattern=patterns, names=st.lists(st.text("abc.-", max_size=8), max_size=8))
def test_it_agrees_with_the_standard_library(pattern: str, names: list[str]) -> None:
    try:
        theirs = re.compile(pattern)
    except re.error:
        assume(False)
    ours = TopicPattern(pattern)
    for name in names:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None)


@given(pattern=st.text("ab|()[]{}*+?.^$\\-,:=!<P1Qdx", max_size=20))
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    with suppress(InvalidPatternError):
        TopicPattern(pattern).matches("ab")
