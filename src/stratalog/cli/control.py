"""The control plane as commands use it that no broker is needed for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from stratalog.cli.errors import NoSuchTopicError
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.plane import ControlPlane
    from stratalog.control.topics.model import Topic


@asynccontextmanager
async def opened_control(settings: Settings) -> AsyncIterator["ControlPlane"]:
    # Imported late: --help should not wait for databases.
    from stratalog.control.open import open_existing

    control = await open_existing(settings.storage.control)
    try:
        yield control
    finally:
        await control.close()


async def topic_named(control: "ControlPlane", name: str) -> "Topic":
    found = await control.topics.named([name])
    if found:
        return found[0]
    close = get_close_matches(name, [topic.name for topic in await control.topics.all()], n=1)
    hint = f'did you mean "{close[0]}"?' if close else "is this the control plane you mean?"
    raise NoSuchTopicError(f'there is no topic "{name}" at {control.url}: {hint}')
