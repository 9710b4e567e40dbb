"""The control plane as commands use it that no broker is needed for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.cli.client import NoSuchTopicError
from stratalog.errors import CallError
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.model import Topic
    from stratalog.control.plane import ControlPlane


class NoControlPlaneError(CallError):
    """There is no control plane at the address that the settings name."""


@asynccontextmanager
async def opened_control(settings: Settings) -> AsyncIterator["ControlPlane"]:
    # Imported late: --help should not wait for databases.
    from stratalog.control.open import open_control_plane

    _refuse_to_create(settings.storage.control)
    control = await open_control_plane(settings.storage.control)
    try:
        yield control
    finally:
        await control.close()


async def topic_named(control: "ControlPlane", name: str) -> "Topic":
    found = await control.topics_named([name])
    if found:
        return found[0]
    close = get_close_matches(name, [topic.name for topic in await control.topics()], n=1)
    hint = f'did you mean "{close[0]}"?' if close else "is this the control plane you mean?"
    raise NoSuchTopicError(f'there is no topic "{name}" at {control.url}: {hint}')


def _refuse_to_create(control: str) -> None:
    """Opening a SQLite file makes one, and nobody would look for it there."""
    scheme, _, path = control.partition(":")
    if scheme == "sqlite" and not Path(path).exists():
        raise NoControlPlaneError(
            f"there is no control plane at {path}: name it with --data, --control or --config, or"
            " start a broker first with `stratalog up`"
        )
