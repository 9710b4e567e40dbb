from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.ledgers import ControlWrapper

from stratalog.control.open import open_control_plane
from stratalog.control.topics.model import Topic
from stratalog.ids import TopicId
from stratalog.testing import ManualClock
from stratalog.topic.catalog import TopicCatalog

EXPIRY_S = 5.0


class CountingControl(ControlWrapper):
    """Counts the look-ups that the cache could not answer."""

    questions = 0

    async def topics_named(self, names: Sequence[str]) -> list[Topic]:
        self.questions += 1
        return await self.inner.topics.named(names)

    async def topics_with_ids(self, ids: Sequence[TopicId]) -> list[Topic]:
        self.questions += 1
        return await self.inner.topics.with_ids(ids)


class Case(NamedTuple):
    catalog: TopicCatalog
    control: CountingControl
    clock: ManualClock

    async def create(self, name: str) -> Topic:
        """As another broker would."""
        return await self.control.inner.topics.create(name, partition_count=1, configs={})


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    counting = CountingControl(control)
    clock = ManualClock()
    yield Case(TopicCatalog(control=counting, clock=clock), counting, clock)
    await control.close()


async def test_a_known_topic_is_not_asked_for_again(case: Case) -> None:
    topic = await case.create("a")
    for _ in range(3):
        assert await case.catalog.named(["a"]) == {"a": topic}
        assert await case.catalog.with_ids([topic.id]) == {topic.id: topic}
    assert case.control.questions == 1


async def test_not_there_is_never_remembered(case: Case) -> None:
    assert await case.catalog.named(["a"]) == {}
    assert case.catalog.cached("a") is None
    topic = await case.create("a")
    assert await case.catalog.named(["a"]) == {"a": topic}
    assert await case.catalog.with_ids([topic.id]) == {topic.id: topic}


async def test_only_what_is_missing_is_asked_for(case: Case) -> None:
    first = await case.create("a")
    await case.catalog.named(["a"])
    second = await case.create("b")
    assert await case.catalog.named(["a", "b", "c"]) == {"a": first, "b": second}
    assert await case.catalog.with_ids([first.id, second.id]) == {
        first.id: first,
        second.id: second,
    }
    assert case.control.questions == 2


async def test_growth_elsewhere_is_seen_when_the_entry_expires(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.control.inner.topics.add_partitions(topic.id, partition_count=4)
    await case.clock.advance(EXPIRY_S)
    assert (await case.catalog.named(["a"]))["a"].partition_count == 1
    await case.clock.advance(0.001)
    assert case.catalog.cached("a") is None
    assert (await case.catalog.named(["a"]))["a"].partition_count == 4
    assert (await case.catalog.with_ids([topic.id]))[topic.id].partition_count == 4


async def test_own_growth_is_seen_at_once(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.catalog.add_partitions(topic, partition_count=4)
    cached = case.catalog.cached("a")
    assert cached is not None
    assert cached.partition_count == 4


async def test_a_deletion_elsewhere_is_noticed_when_the_entry_expires(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.control.inner.topics.delete(topic.id)
    await case.clock.advance(EXPIRY_S + 0.001)
    assert await case.catalog.named(["a"]) == {}
    assert await case.catalog.with_ids([topic.id]) == {}


async def test_what_somebody_found_to_be_wrong_is_asked_for_again(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.control.inner.topics.delete(topic.id)
    case.catalog.forget(topic.id)
    assert await case.catalog.named(["a"]) == {}
    case.catalog.forget(topic.id)


async def test_own_deletion_is_noticed_at_once(case: Case) -> None:
    topic = await case.catalog.create("a", partition_count=1, configs={})
    assert case.catalog.cached("a") == topic
    await case.catalog.delete(topic)
    assert case.catalog.cached("a") is None
    assert case.catalog.cached_id(topic.id) is None
    assert await case.catalog.named(["a"]) == {}


async def test_who_asks_for_the_truth_is_not_told_from_the_cache(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.control.inner.topics.add_partitions(topic.id, partition_count=4)
    assert (await case.catalog.refreshed(["a", "b"]))["a"].partition_count == 4
    assert (await case.catalog.named(["a"]))["a"].partition_count == 4
    await case.control.inner.topics.delete(topic.id)
    assert await case.catalog.refreshed(["a"]) == {}
    assert case.catalog.cached("a") is None
    assert case.catalog.cached_id(topic.id) is None


async def test_own_changes_of_configs_are_seen_at_once(case: Case) -> None:
    topic = await case.create("a")
    await case.catalog.named(["a"])
    await case.catalog.set_configs(topic, {"retention.ms": "5"})
    cached = case.catalog.cached("a")
    assert cached is not None
    assert cached.configs == {"retention.ms": "5"}


async def test_who_asks_while_a_topic_is_being_deleted_does_not_bring_it_back(
    tmp_path: Path,
) -> None:
    class Slow(ControlWrapper):
        async def topics_delete(self, topic_id: TopicId) -> None:
            assert await catalog.named(["a"]), "it is still there"
            await self.inner.topics.delete(topic_id)

    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    catalog = TopicCatalog(control=Slow(control), clock=ManualClock())
    await catalog.delete(await catalog.create("a", partition_count=1, configs={}))
    assert await catalog.named(["a"]) == {}
    await control.close()


async def test_a_topic_that_took_over_a_name_replaces_the_earlier_one(case: Case) -> None:
    earlier = await case.create("a")
    await case.catalog.named(["a"])
    await case.control.inner.topics.delete(earlier.id)
    later = await case.create("a")
    assert await case.catalog.all() == [later]
    assert case.catalog.cached("a") == later
    assert case.catalog.cached_id(earlier.id) is None
    assert case.catalog.cached_id(later.id) == later
