from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The control plane that is backed up and lost."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'control.db'}"
    url: str = request.getfixturevalue("postgres_dsn")
    return url


@pytest.fixture
def restored_url(control_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty database of the other kind, for the restored control plane."""
    if not control_url.startswith("sqlite:"):
        return f"sqlite:{tmp_path / 'restored.db'}"
    url: str = request.getfixturevalue("postgres_dsn")
    return url
