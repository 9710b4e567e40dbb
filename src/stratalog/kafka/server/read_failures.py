"""Why records cannot be read, said in the log.

Kafka's responses to readers carry a number and no message, and most clients only try again. What
is wrong, and with which object, is for the operator to know.
"""

import logging
from collections import OrderedDict

from stratalog.clock import Clock
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import RetriableError, StratalogError

log = logging.getLogger(__name__)

_PAUSE_S = 60.0
"""Between two lines about the same thing: clients ask several times a second."""
_MOST_THINGS = 1000

_CLIENTS_OWN = (UnknownTopicError, OffsetOutOfRangeError)
"""What a client learns from the number alone, and what is no trouble of ours."""


class ReadFailures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_at: OrderedDict[tuple[type, str], float] = OrderedDict()

    def note(self, topic: str, partition: int, error: StratalogError) -> None:
        if isinstance(error, _CLIENTS_OWN):
            return
        where = f"{topic}-{partition}"
        # A store that is away is so for all partitions.
        if self._is_new((type(error), "" if isinstance(error, RetriableError) else where)):
            log.warning("%s cannot be read: %s", where, error)

    def _is_new(self, thing: tuple[type, str]) -> bool:
        now_s = self._clock.monotonic()
        said_at = self._said_at.get(thing)
        if said_at is not None and now_s - said_at < _PAUSE_S:
            return False
        self._said_at[thing] = now_s
        self._said_at.move_to_end(thing)
        if len(self._said_at) > _MOST_THINGS:
            self._said_at.popitem(last=False)
        return True
