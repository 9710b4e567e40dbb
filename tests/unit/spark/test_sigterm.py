"""The signal that ends a process of Spark's."""

import signal
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from stratalog.spark.sigterm import exit_on_sigterm

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


@pytest.fixture
def main_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands in for the main module of the process."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_the_first_signal_unwinds_a_runner_of_streams_and_the_second_does_not_disturb_that(
    main_module: ModuleType,
) -> None:
    main_module.__spec__ = ModuleSpec(RUNNER, None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        exit_on_sigterm()
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("spec", [None, ModuleSpec("pytest", None)])
def test_other_processes_keep_their_own_way_to_end(
    main_module: ModuleType, spec: ModuleSpec | None
) -> None:
    main_module.__spec__ = spec
    before = signal.getsignal(signal.SIGTERM)
    exit_on_sigterm()
    assert signal.getsignal(signal.SIGTERM) == before
