"""Names of topics after a recovery."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from stratalog.admin.topic_names import check_topic_name
from stratalog.ids import TopicId
from stratalog.recovery.topic_names import NamedTopic, distinct_names


def topic(number: int, name: str, newest_ms: int, *, is_deleted: bool = False) -> NamedTopic:
    return NamedTopic(TopicId(UUID(int=number)), name, is_deleted, newest_ms)


def test_the_topic_with_the_newest_objects_keeps_its_name() -> None:
    names = distinct_names([topic(1, "orders", 5), topic(2, "orders", 9), topic(3, "other", 1)])
    assert names[TopicId(UUID(int=2))] == "orders"
    assert names[TopicId(UUID(int=3))] == "other"
    assert names[TopicId(UUID(int=1))].startswith("orders.")


def test_a_deleted_topic_gives_its_name_up_whatever_its_age() -> None:
    names = distinct_names([topic(1, "orders", 9, is_deleted=True), topic(2, "orders", 5)])
    assert names[TopicId(UUID(int=2))] == "orders"


@given(st.lists(st.tuples(st.sampled_from(["a", "b" * 249]), st.integers(0, 3), st.booleans())))
def test_names_are_good_and_each_stands_once(given_: list[tuple[str, int, bool]]) -> None:
    topics = [
        topic(place, name, newest, is_deleted=deleted)
        for place, (name, newest, deleted) in enumerate(given_)
    ]
    names = distinct_names(topics)
    assert len(set(names.values())) == len(topics)
    for name in names.values():
        check_topic_name(name)
    assert {name for name, *_ in given_} <= set(names.values())
