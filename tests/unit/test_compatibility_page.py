from pathlib import Path

from tools.make_compatibility_page import PAGE, api_name, load_seen, render

from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey
from stratalog.topic_configs import DEFINITIONS

FROM_KAFKA = Path(PAGE).parents[1] / "from-kafka.md"


def test_the_compatibility_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(load_seen()), "run make docs"


def test_every_api_is_on_the_page_with_its_versions() -> None:
    page = render({"some-client": {"FETCH": [4, 11]}})
    for key in served():
        assert f"| {api_name(key)} | {int(key)} |" in page
    assert "| Fetch | 1 | 4–18 | Read Topic | 4, 11 |" in page
    assert "| Produce | 0 | 0–13 (below 3 refused) | Write Topic | |" in page


def test_clients_were_only_seen_to_use_what_is_served() -> None:
    for apis in load_seen().values():
        for name, versions in apis.items():
            assert all(version in served()[ApiKey[name]] for version in versions)


def test_every_topic_config_is_explained_to_those_who_come_from_kafka() -> None:
    page = FROM_KAFKA.read_text(encoding="utf-8")
    working, ignored = page.split("These are accepted")
    for name, definition in DEFINITIONS.items():
        part = ignored if "changes nothing" in definition.documentation else working
        assert f"`{name}`" in part, name
