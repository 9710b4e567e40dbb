"""Whoever misses something where there are no settings has most likely meant other ones."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.control.plane import NoControlPlaneError
from stratalog.scan.errors import TopicNotFoundError
from stratalog.settings_source import FILE_VARIABLE, find_settings_file
from stratalog.spark.sink_model import SinkTopicError

_MISSED = (NoControlPlaneError, TopicNotFoundError, SinkTopicError)


@contextmanager
def telling_of_settings(config: Path | None) -> Iterator[None]:
    """`config` is what the option of that name says."""
    try:
        yield
    except _MISSED as error:
        if find_settings_file(config, os.environ, Path.cwd()) is not None:
            raise
        raise type(error)(
            f'{error}; no settings file was found: name it by .option("config", ...) or by'
            f" ${FILE_VARIABLE}"
        ) from None
