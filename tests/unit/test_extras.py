"""An extra that is not installed: which error, which line."""

import asyncio
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stratalog import extras
from stratalog.cli.main import app
from stratalog.errors import CallError, MissingExtraError
from stratalog.pipeline.service import PipelineService
from stratalog.settings import Settings

LINE = "pip install 'stratalog[spark]'"


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find(name: str) -> Any:
        return None if name in ("pyspark", "pandas") else found(name)

    monkeypatch.setattr(extras, "find_spec", find)


def test_nothing_is_missing_where_all_extras_are_installed() -> None:
    assert extras.has_spark()
    extras.require_spark("this test")


def test_a_missing_package_is_named_with_the_line_that_installs_it(without_spark: None) -> None:
    assert not extras.has_spark()
    with pytest.raises(MissingExtraError) as caught:
        extras.require_spark("this test")
    assert str(caught.value) == f"this test needs pyspark and pandas, not installed here: {LINE}"
    assert isinstance(caught.value, CallError)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("name", ["stratalog.spark", "pyspark_stratalog"])
def test_imports_of_the_data_source_say_the_line(
    name: str, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in list(sys.modules):
        if loaded.startswith(("stratalog.spark", "pyspark_stratalog")):
            monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(MissingExtraError, match=r"stratalog\[spark\]"):
        importlib.import_module(name)


def test_a_run_of_the_pipeline_says_the_line_without_a_traceback(
    without_spark: None, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["pipeline", "run", "--data", str(tmp_path)])
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert LINE in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_broker_without_spark_warns_once_and_looks_for_no_work(
    without_spark: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings()
    storage = replace(settings.storage, objects=str(tmp_path), control=f"sqlite:{tmp_path}/c.db")

    async def start() -> None:
        service = PipelineService(replace(settings, storage=storage))
        service.start()
        await service.stop()

    asyncio.run(start())
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert LINE in record.getMessage()
