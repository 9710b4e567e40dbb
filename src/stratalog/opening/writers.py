"""The announcement of a writer for as long as it uploads."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.errors import StratalogError
from stratalog.ids import WriterTag

log = logging.getLogger(__name__)


@asynccontextmanager
async def announced_writer(control: ControlPlane, kind: WriterKind) -> AsyncIterator[WriterTag]:
    """Announce a writer before its first upload, and note its end."""
    tag = control.writers.new_tag()
    await control.writers.announce(tag, kind)
    try:
        yield tag
    finally:
        await end_writer(control, tag)


async def end_writer(control: ControlPlane, tag: WriterTag) -> None:
    """Note the end of a writer, if the control plane answers. A writer whose end was not noted is
    forgotten later than others."""
    try:
        await control.writers.end(tag)
    except StratalogError as error:
        log.info("The end of writer %010x was not noted: %s", tag, error)
