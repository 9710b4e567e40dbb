"""Logs the reasons for which records cannot be read.

Kafka's responses to readers carry a number and no message, and most clients only try again. The
operator needs the cause and the object, and finds both in the log.
"""

import logging
from collections import OrderedDict

from stratalog.clock import Clock
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import RetriableError, StratalogError

log = logging.getLogger(__name__)

_PAUSE_S = 60.0
"""Between two lines about the same failure, because clients ask several times a second."""
_MOST_FAILURES = 1000

_CLIENTS_OWN = (UnknownTopicError, OffsetOutOfRangeError)
"""Errors that the code explains to the client, and that are no trouble of the broker."""


class ReadFailures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_at: OrderedDict[tuple[type, str], float] = OrderedDict()

    def note(self, topic: str, partition: int, error: StratalogError) -> None:
        if isinstance(error, _CLIENTS_OWN):
            return
        where = f"{topic}-{partition}"
        # A store that is away affects all partitions, so one line is enough.
        if self._is_new((type(error), "" if isinstance(error, RetriableError) else where)):
            log.warning("%s cannot be read: %s", where, error)

    def _is_new(self, failure: tuple[type, str]) -> bool:
        now_s = self._clock.monotonic()
        logged_at = self._logged_at.get(failure)
        if logged_at is not None and now_s - logged_at < _PAUSE_S:
            return False
        self._logged_at[failure] = now_s
        self._logged_at.move_to_end(failure)
        if len(self._logged_at) > _MOST_FAILURES:
            self._logged_at.popitem(last=False)
        return True
