"""`stratalog cluster config`, beside a running broker."""

import json
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from typer.testing import CliRunner

from stratalog.cli.main import app
from stratalog.settings import CLUSTER_WIDE, StorageSettings
from stratalog.testing.broker import FAST, Broker


def test_the_settings_of_the_cluster_are_listed_and_changed(tmp_path: Path) -> None:
    storage = StorageSettings(
        objects=f"file:{tmp_path / 'objects'}", control=f"sqlite:{tmp_path / 'control.db'}"
    )
    runner = CliRunner(env={"NO_COLOR": "1"})

    def config(*arguments: str, code: int = 0) -> str:
        result = runner.invoke(app, ("cluster", "config", *arguments, "--data", str(tmp_path)))
        assert result.exit_code == code, result.output
        return result.output

    with Broker(replace(FAST, storage=storage)) as broker:
        listed = {one["setting"]: one for one in json.loads(config("list", "--json"))}
        assert sorted(listed) == sorted(CLUSTER_WIDE)
        assert listed["block.window_ms"]["value"] == "5"
        assert "= 2592000000" in config("set", "topic.retention.ms", "30d")
        assert "User:ANONYMOUS" in config("list")
        assert _retention(broker) == "2592000000"
        assert "= 604800000" in config("unset", "topic.retention.ms")
        assert _retention(broker) == "604800000"
        assert "is not shared" in config("set", "fetch.poll_ms", "5", code=1)
        assert "must be at most" in config("set", "janitor.retention_window_ms", "99d", code=1)


def _retention(broker: Broker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "0")]).values()
    return str(described.result(10)["log.retention.ms"].value)
