"""The fetch sessions of this broker, in a bounded number of slots and bytes.

A session belongs to its connection, which has one at the most, and ends with it: a client that
connects again begins with a full fetch anyway. So each session has one fetch at a time, its place
in memory is freed with the socket, and one client cannot take the slots of all.

A full fetch that finds no slot is answered without a session, which every client understands.
Before that, the rules of Kafka free a slot: a session goes that has not been used for two minutes,
or else the smallest one that was opened longer ago, if the new one is larger.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.ids import Entropy, system_entropy
from stratalog.kafka.fetches.errors import (
    FetchSessionEpochError,
    FetchSessionNotFoundError,
    FetchSessionTopicIdError,
)
from stratalog.kafka.fetches.request import (
    FetchBody,
    FetchPartition,
    PlaceKey,
    asked_for,
    forgotten,
)
from stratalog.kafka.fetches.session import LAST_EPOCH, FetchSession
from stratalog.kafka.server.memory import Memory
from stratalog.kafka.server.session import Session
from stratalog.kafka.wire.fetch_response import (
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
)
from stratalog.metrics import FETCH_SESSIONS, Metrics
from stratalog.settings import Settings
from stratalog.topic.watermarks import Watch

T = TypeVar("T")

PLACE_BYTES = 1 << 10
"""The memory of one partition of a session, measured with tracemalloc and rounded up."""
_FIRST_EPOCH = 0
_NO_EPOCH = -1
_EVICTION_S = 120.0
"""Kafka's `min.incremental.fetch.session.eviction.ms`."""


class FetchSessions:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        metrics: Metrics,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._slots = settings.fetch.sessions
        self._max_places = settings.broker.max_request_entries
        self._memory = Memory(settings.broker.request_memory_bytes // 4)
        self._clock = clock
        self._entropy = entropy
        self._events = metrics.counter(FETCH_SESSIONS)
        self._by_connection: dict[int, FetchSession] = {}

    def session_of(
        self, connection: Session, version: int, body: FetchBody, watch: Callable[[], Watch]
    ) -> FetchSession | None:
        """Return the session that a fetch begins or continues, with the fetch's changes. None if
        the fetch has no session.

        Raises an error if the fetch continues a session that is not there, or not as it says.
        """
        if version < FIRST_VERSION_WITH_SESSIONS:
            return None
        if body.session_epoch in (_FIRST_EPOCH, _NO_EPOCH):
            return self._full(connection, version, body, watch)
        session = self._continued(connection, version, body)
        session.update(asked_for(version, body), forgotten(version, body))
        if not len(session):
            self._end(session, "ended")
            return None
        if not self._fits(session):
            self._end(session, "ended")
            raise FetchSessionNotFoundError("the fetch session has grown too large")
        session.advance(self._clock.monotonic())
        return session

    async def use(self, session: FetchSession, fetch: Awaitable[T]) -> T:
        """Work on a fetch of the session. A fetch that fails ends it: its client begins again."""
        session.is_in_use = True
        try:
            return await fetch
        except BaseException:
            self._end(session, "ended")
            raise
        finally:
            session.is_in_use = False
            if self._by_connection.get(session.connection) is not session:
                self._close(session)

    def connection_ended(self, connection: Session) -> None:
        session = self._by_connection.get(connection.number)
        if session is not None:
            self._end(session, "ended")

    def _full(
        self, connection: Session, version: int, body: FetchBody, watch: Callable[[], Watch]
    ) -> FetchSession | None:
        """Begin a session, if the fetch asks for one and there is room."""
        old = self._by_connection.get(connection.number)
        begins = body.session_epoch == _FIRST_EPOCH
        if old is not None and (begins or old.id == body.session_id):
            self._end(old, "ended")
        asked = asked_for(version, body) if begins else {}
        if not asked:
            return None
        session = self._opened(connection, watch, asked, version)
        self._events.labels("refused" if session is None else "begun").inc()
        return session

    def _opened(
        self,
        connection: Session,
        watch: Callable[[], Watch],
        asked: Mapping[PlaceKey, FetchPartition],
        version: int,
    ) -> FetchSession | None:
        if not self._has_slot(len(asked)):
            return None
        session = FetchSession(
            self._new_id(),
            connection.number,
            watch(),
            uses_ids=version >= FIRST_VERSION_WITH_TOPIC_IDS,
            opened_s=self._clock.monotonic(),
        )
        session.update(asked)
        if not self._fits(session):
            session.close()
            return None
        self._by_connection[connection.number] = session
        connection.at_end[self.connection_ended] = None
        return session

    def _continued(self, connection: Session, version: int, body: FetchBody) -> FetchSession:
        session = self._by_connection.get(connection.number)
        if session is None or session.id != body.session_id:
            raise FetchSessionNotFoundError(f"there is no fetch session {body.session_id}")
        if session.epoch != body.session_epoch:
            raise FetchSessionEpochError(
                f"epoch {body.session_epoch} of a fetch session that is at {session.epoch}"
            )
        if session.uses_ids != (version >= FIRST_VERSION_WITH_TOPIC_IDS):
            raise FetchSessionTopicIdError("a fetch session names its topics by id, or by name")
        return session

    def _new_id(self) -> int:
        """A random id is not the one that a restarted broker gave to another client."""
        return int.from_bytes(self._entropy(4)) % LAST_EPOCH + 1

    def _has_slot(self, size: int) -> bool:
        sessions = self._by_connection.values()
        if len(sessions) < self._slots:
            return True
        if not sessions:
            return False
        before_s = self._clock.monotonic() - _EVICTION_S
        oldest = min(sessions, key=lambda one: one.used_s)
        if oldest.used_s < before_s:
            self._end(oldest, "evicted")
            return True
        smallest = min((one for one in sessions if one.opened_s < before_s), key=len, default=None)
        if smallest is None or len(smallest) >= size:
            return False
        self._end(smallest, "evicted")
        return True

    def _fits(self, session: FetchSession) -> bool:
        """Charge the session for its places, unless they are too many."""
        more_bytes = len(session) * PLACE_BYTES - session.held_bytes
        if len(session) > self._max_places:
            return False
        if more_bytes > 0 and not self._memory.take_at_once(more_bytes):
            return False
        if more_bytes < 0:
            self._memory.give(-more_bytes)
        session.held_bytes += more_bytes
        return True

    def _end(self, session: FetchSession, event: str) -> None:
        """Forget a session. One that is in use is closed after its fetch."""
        if self._by_connection.get(session.connection) is session:
            del self._by_connection[session.connection]
            self._events.labels(event).inc()
        if not session.is_in_use:
            self._close(session)

    def _close(self, session: FetchSession) -> None:
        session.close()
        self._memory.give(session.held_bytes)
        session.held_bytes = 0
