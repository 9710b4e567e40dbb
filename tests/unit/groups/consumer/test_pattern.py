import pytest

from stratalog.groups.consumer.errors import InvalidPatternError
from stratalog.groups.consumer.pattern import TopicPattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("^orders.*", ["orders", "orders-eu"], ["my-orders", "order"]),
        ("^a.*|^b.*", ["a1", "b"], ["ab-".replace("a", "c"), ""]),
        ("a|", ["a", ""], ["b"]),
        ("t{2,3}", ["tt", "ttt"], ["t", "tttt"]),
        ("t{2}", ["tt"], ["t", "ttt"]),
        ("(ab){2,}", ["abab", "ababab"], ["ab", "aba"]),
        ("t{,3}", ["t{,3}"], ["t"]),
        ("a+?b??", ["a", "aab"], ["b"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc", "a.b"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\d+\w\D", ["12ab"], ["12a1"]),
        ("[a-c_.-]+", ["a.b-c_"], ["d", ""]),
        ("[^a-c]", ["d", "-"], ["a", "dd"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[:digit:][:upper:]]", ["7", "X"], ["x"]),
        ("[[:^alpha:]]", ["7", "-"], ["x"]),
        (r"[\d.]+", ["1.2"], ["a"]),
        (r"\x61\x{62}", ["ab"], ["x61"]),
        ("(?i)AbC", ["abc", "ABC"], ["abd"]),
        ("a(?i:b)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("(?i)a(?-i)b", ["ab", "Ab"], ["aB"]),
        ("(?P<name>a)(?<other>b)(?:c)", ["abc"], ["ab"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        ("a$b|c$", ["c"], ["ab", "a"]),
        ("b^a|^c", ["c"], ["ba"]),
        ("^$", [""], ["a"]),
        ("(a*)*b", ["b", "aaab"], ["a"]),
    ],
)
def test_a_pattern_fits_whole_names(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in matching if not compiled.matches(name)] == []
    assert [name for name in others if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "a)",
        "*a",
        "a**",
        "a++",
        "{2}",
        "a{3,2}",
        "a{1001}",
        "[a",
        "[b-a]",
        "[[:what:]]",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "(?>a)",
        "(?",
        r"\bword",
        r"\pL",
        r"\x{110000}",
        "\\",
        "a" * 1025,
        "(" * 51 + ")" * 51,
        "((a{50}){50}){50}",
    ],
)
def test_what_is_not_a_pattern_of_re2_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["a" * 1024, "(" * 50 + ")" * 50, "a{1000}"])
def test_patterns_of_the_largest_size_are_taken(pattern: str) -> None:
    TopicPattern(pattern)


def test_a_pattern_made_to_last_for_ever_does_not() -> None:
    """The standard library would need about 2 to the power of 249 steps."""
    pattern = TopicPattern("(a|a)*(a*)*(a+)+b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")
