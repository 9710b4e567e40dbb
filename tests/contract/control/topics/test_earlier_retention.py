"""The history of a topic's retention."""

import pytest

from stratalog.control.earlier_values import KEPT_MS, EarlierValue, with_earlier
from stratalog.control.errors import TooManyChangesError
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic


async def test_a_changed_retention_is_noted_with_its_time(
    plane: ControlPlane, topic: Topic
) -> None:
    await plane.topics.set_configs(topic.id, {"retention.ms": "9", "segment.ms": "1"})
    changed = await plane.topics.set_configs(topic.id, {"retention.ms": "5", "segment.ms": "2"})
    assert list(changed.earlier_retention) == ["retention.ms"]
    first, second = changed.earlier_retention["retention.ms"]
    assert (first.value, second.value) == (None, "9")
    assert changed.created_ms <= first.until_ms <= second.until_ms
    # The same value once more is no change.
    again = await plane.topics.set_configs(topic.id, {"retention.ms": "5"})
    assert again.earlier_retention == changed.earlier_retention
    [found] = await plane.topics.named([topic.name])
    assert found == again


def test_a_history_stays_short() -> None:
    history: tuple[EarlierValue, ...] = ()
    for now_ms in range(1000):
        history = with_earlier(history, f"{now_ms % 2}", now_ms=now_ms, name="it")
    assert history == (EarlierValue("0", 998), EarlierValue("1", 999))
    later = with_earlier(history, None, now_ms=KEPT_MS + 998, name="it")
    assert later == (EarlierValue("1", 999), EarlierValue(None, KEPT_MS + 998))
    crowded = [EarlierValue(f"{number}", number) for number in range(100)]
    with pytest.raises(TooManyChangesError):
        with_earlier(crowded, "new", now_ms=200, name="it")


async def test_the_first_broker_gives_the_cluster_its_settings(
    plane: ControlPlane, other: ControlPlane
) -> None:
    assert (await plane.settings.now()).settings == {}
    await plane.settings.found({"a": "1", "b": "2"}, by="first")
    now = await other.settings.found({"a": "5", "c": "3"}, by="second")
    values = {name: (one.value, one.changed_by) for name, one in now.settings.items()}
    assert values == {"a": ("1", "first"), "b": ("2", "first"), "c": ("3", "second")}
    assert now.now_ms > 0


async def test_a_changed_setting_keeps_its_earlier_values(plane: ControlPlane) -> None:
    await plane.settings.found({"a": "1"}, by="first")
    changed = await plane.settings.change("a", "2", by="alice")
    assert [entry.value for entry in changed.earlier] == ["1"]
    assert (await plane.settings.change("a", "2", by="bob")) == changed
    assert (await plane.settings.now()).settings == {"a": changed}
    new = await plane.settings.change("new", "7", by="bob")
    assert (new.value, new.changed_by, new.earlier) == ("7", "bob", ())
