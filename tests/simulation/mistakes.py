"""Log lines that tell of a mistake of ours: an error that no code expected."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from stratalog.errors import StratalogError


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.mistakes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StratalogError):
            self.mistakes.append(f"mistake: {record.getMessage()}: {error!r}")


@contextmanager
def logged_mistakes() -> Iterator[list[str]]:
    """Collect unexpected errors that were logged. The other lines of the nodes go nowhere: they
    tell of faults, of which there are many."""
    logger, collector = logging.getLogger("stratalog"), _Collector()
    before = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(collector)
    try:
        yield collector.mistakes
    finally:
        logger.removeHandler(collector)
        logger.setLevel(before[0])
        logger.propagate = before[1]
