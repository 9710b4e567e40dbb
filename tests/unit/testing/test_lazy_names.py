import subprocess
import sys

import pytest

import stratalog.testing


def test_the_plugin_loads_no_broker_before_one_is_asked_for() -> None:
    """Every pytest run on a machine with Stratalog pays for the plugin's imports."""
    script = (
        "import sys, stratalog.testing.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('stratalog.kafka', 'uvloop'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_name_that_is_promised_is_there() -> None:
    for name in stratalog.testing.__all__:
        assert getattr(stratalog.testing, name).__name__ == name


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="Brocker"):
        stratalog.testing.Brocker  # noqa: B018
