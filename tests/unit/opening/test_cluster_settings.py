"""A process's own settings beside the cluster's."""

from stratalog.control.settings.model import ClusterSetting, ClusterSettingsNow
from stratalog.opening.cluster_settings import SettingsInForce, settings_in_force
from stratalog.settings import CLUSTER_WIDE, BlockSettings, JanitorSettings, Settings
from stratalog.settings_source import checked_text, load_settings, setting_fields


def _in_force(own: Settings, **values: str) -> SettingsInForce:
    settings = {
        name: ClusterSetting(name=name, value=value, changed_ms=1, changed_by="x", earlier=())
        for name, value in values.items()
    }
    return settings_in_force(own, ClusterSettingsNow(now_ms=7, settings=settings))


def test_every_setting_of_the_cluster_exists_and_has_a_text() -> None:
    for name in CLUSTER_WIDE:
        assert name in setting_fields() or name.startswith("topic.")
        assert checked_text(name, "77") == "77"


def test_the_clusters_value_takes_the_place_of_a_default() -> None:
    found = _in_force(Settings(), **{"janitor.grace_ms": "5", "topic.retention.ms": "9"})
    assert found.settings.janitor.grace_ms == 5
    assert found.settings.topic == {"retention.ms": "9"}
    assert found.differing == frozenset()
    assert not found.complete


def test_a_value_that_was_given_differs_even_if_it_is_the_default() -> None:
    own = load_settings(None, ["janitor.grace_ms=60s"], environment={})
    found = _in_force(own, **{"janitor.grace_ms": "5"})
    assert found.differing == {"janitor.grace_ms"}
    assert found.settings.janitor.grace_ms == 5


def test_where_nothing_is_deleted_a_given_value_is_in_force() -> None:
    own = Settings(block=BlockSettings(window_ms=3), janitor=JanitorSettings(grace_ms=3))
    found = _in_force(own, **{"block.window_ms": "5", "janitor.grace_ms": "3"})
    assert found.differing == {"block.window_ms"}
    assert found.settings == own
    assert found.now_ms == 7
