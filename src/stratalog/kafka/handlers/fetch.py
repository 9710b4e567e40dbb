"""Fetch: reads the writes of any broker, in a fetch session or without one.

A consumer that names its rack is sent on to the broker of its zone at which the readers of the
partition meet. A consumer that stays is served.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypedDict

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import UnknownTopicIdError
from stratalog.admin.rights import READ_TOPIC
from stratalog.control.log.model import Span
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, TopicId, TopicPartition
from stratalog.kafka.fetches.errors import FetchSessionError
from stratalog.kafka.fetches.request import FetchBody, TopicKey, asked_for
from stratalog.kafka.fetches.session import FetchSession, Place
from stratalog.kafka.handlers.shared.leader_epochs import KnownEpoch, is_doubtful, wrong_epochs
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.error_codes import code_of, fetch_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.server.work import LIGHT_ENTRIES
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.fetch_response import (
    FIRST_VERSION_WITH_RACK,
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_SESSION,
    PartitionFetched,
    TopicFetched,
    fetch_response,
)
from stratalog.topic.model import PartitionRead, ReadWork

_READ_COMMITTED = 1
_FIRST_VERSION_WITH_EPOCHS = 9
_GONE = ErrorCode.unknown_topic_or_partition

_HEAVY_WAIT_MS = 5000
"""A fetch of many partitions holds memory while it waits. Clients wait for half a second."""


class _Answer(NamedTuple):
    place: Place
    fetched: PartitionFetched
    is_at_end: bool = False


class FetchHandler(Handler[FetchBody]):
    key = ApiKey.FETCH
    versions = Versions(4, 18, 12)
    rights = (READ_TOPIC,)
    body = FetchBody
    in_every_worker = True
    waits = True
    keeps_lane = True

    def __init__(self, components: DataComponents) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._reader = components.reader
        self._control = components.control
        self._membership = components.membership
        self._metrics = components.metrics
        self._failures = components.failures
        self._sessions = components.fetch_sessions

    async def handle(self, request: Request, body: FetchBody) -> Body:
        session = self._sessions.session_of(
            request.session, request.version, body, self._reader.watch
        )
        if session is None:
            return await self._without_session(request, body)
        return await self._sessions.use(session, self._in_session(request, body, session))

    async def _without_session(self, request: Request, body: FetchBody) -> Body:
        places = [Place(*one) for one in asked_for(request.version, body).items()]
        if not places:
            # The last fetch of a session. Kafka does not wait either.
            return _response(request, body, ())
        topics = await self._topics(places)
        for place in places:
            place.partition = place.located(topics.get(place.key.topic))
        turned = await self._turned_away(request, body, places)
        spans = _spans(places, turned)
        answers = await self._reader.read(spans, **_terms(request, body, places, turned))
        reads = {span.topic_partition: read for span, read in zip(spans, answers, strict=True)}
        return _response(request, body, self._answers(request, places, turned, reads))

    async def _in_session(self, request: Request, body: FetchBody, session: FetchSession) -> Body:
        session.seen_as(self._view(body))
        checked = session.awake(session.watch.rest())
        if len(checked) > LIGHT_ENTRIES and not request.work.is_heavy:
            await request.work.enter_lane()
        topics = await self._topics(checked)
        for place in checked:
            session.locate(place, topics.get(place.key.topic))
        turned = await self._turned_away(request, body, checked)
        answered = await self._reader.read_watched(
            session.watch,
            lambda stirred: _spans(session.awake(stirred), turned),
            **_terms(request, body, checked, turned),
        )
        reads = {span.topic_partition: read for span, read in answered}
        answers = self._answers(request, session.awake(()), turned, reads)
        return _response(request, body, _told(session, answers, checked), session.id)

    async def _topics(self, places: Sequence[Place]) -> Mapping[TopicKey, Topic]:
        topics: dict[TopicKey, Topic] = {}
        names: list[str] = []
        ids: list[TopicId] = []
        for key in {place.key.topic: None for place in places}:
            topic = self._cached(key)
            if topic is not None:
                topics[key] = topic
            elif isinstance(key, str):
                names.append(key)
            elif key is not None:
                ids.append(key)
        if names:
            topics.update((await self._catalog.named(names)).items())
        if ids:
            topics.update((await self._catalog.with_ids(ids)).items())
        return topics

    def _cached(self, key: TopicKey) -> Topic | None:
        if key is None:
            return None
        return self._catalog.cached(key) if isinstance(key, str) else self._catalog.cached_id(key)

    async def _turned_away(
        self, request: Request, body: FetchBody, places: Sequence[Place]
    ) -> dict[TopicPartition, PartitionFetched]:
        """Return the answers for partitions that are not read for this client."""
        wrong = await self._with_wrong_epochs(request, places)
        if request.version < FIRST_VERSION_WITH_RACK or not body.rack_id:
            return wrong
        return wrong | await self._sent_on(body, _spans(places, wrong))

    async def _with_wrong_epochs(
        self, request: Request, places: Sequence[Place]
    ) -> dict[TopicPartition, PartitionFetched]:
        """Return the answers for partitions of which the client knows another leader epoch."""
        if request.version < _FIRST_VERSION_WITH_EPOCHS:
            return {}
        doubtful = [
            KnownEpoch(place.topic, place.partition.partition, epoch)
            for place in places
            if place.topic is not None
            and place.partition is not None
            and is_doubtful(
                place.topic, place.partition.partition, epoch := place.asked.current_leader_epoch
            )
        ]
        if not doubtful:
            return {}
        wrong = await wrong_epochs(self._control, doubtful)
        for key, code in wrong.items():
            self._catalog.forget(key.topic_id)
            self._metrics.partition_failed(ApiKey.FETCH, code.name)
        return {key: _failed(key.partition, code) for key, code in wrong.items()}

    async def _sent_on(
        self, body: FetchBody, spans: Sequence[Span]
    ) -> dict[TopicPartition, PartitionFetched]:
        """Return the answers for partitions that should be read at another broker.

        An offset that is out of range is answered here: a consumer that hears of it elsewhere
        comes back to the leader, which must not send it away again.
        """
        nearer = {
            span.topic_partition: broker.broker_id
            for span in spans
            if (broker := self._membership.nearer_broker(span.topic_partition, body.rack_id))
        }
        states = await self._control.log.partitions(list(nearer)) if nearer else {}
        return {
            key: PartitionFetched(
                span.partition,
                ErrorCode.none,
                state.high_watermark,
                state.last_stable,
                state.log_start,
                preferred_replica=nearer[key],
            )
            for span in spans
            if (state := states.get(key := span.topic_partition)) is not None
            and state.log_start <= span.offset <= state.high_watermark
        }

    def _view(self, body: FetchBody) -> object:
        """Everything but the partitions themselves that decides how a consumer reads them."""
        live = tuple(self._membership.live()) if body.rack_id else ()
        return body.isolation_level, body.rack_id, live

    def refuse(self, request: Request, body: FetchBody, error: Exception) -> Body:
        code = code_of(error)
        topics = [
            TopicFetched(
                asked.topic,
                asked.topic_id,
                [_failed(one.partition, code) for one in asked.partitions],
            )
            for asked in body.topics
            if not isinstance(error, FetchSessionError)
        ]
        top_level = code if request.version >= FIRST_VERSION_WITH_SESSIONS else 0
        return fetch_response(request.version, topics, error_code=top_level)

    def _answers(
        self,
        request: Request,
        places: Sequence[Place],
        turned: Mapping[TopicPartition, PartitionFetched],
        reads: Mapping[TopicPartition, PartitionRead],
    ) -> list[_Answer]:
        answers = []
        for place in places:
            if place.partition is None:
                answers.append(_Answer(place, self._unknown(request, place)))
            elif (fetched := turned.get(place.partition)) is not None:
                answers.append(_Answer(place, fetched))
            elif (read := reads.get(place.partition)) is not None:
                answers.append(self._read(place, read))
        return answers

    def _unknown(self, request: Request, place: Place) -> PartitionFetched:
        error: StratalogError = UnknownTopicError("no topic has this name")
        if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            error = UnknownTopicIdError("no topic has this id")
        return self._partition(place.key.partition, PartitionRead(error=error))

    def _read(self, place: Place, read: PartitionRead) -> _Answer:
        assert place.topic is not None
        if read.error is not None:
            self._failures.note(place.topic.name, place.key.partition, read.error)
        fetched = self._partition(place.key.partition, read)
        if fetched.error_code == _GONE:
            self._catalog.forget(place.topic.id)
        is_at_end = (
            not (read.error or read.parts) and read.high_watermark == place.asked.fetch_offset
        )
        return _Answer(place, fetched, is_at_end)

    def _partition(self, index: int, read: PartitionRead) -> PartitionFetched:
        code = ErrorCode.none if read.error is None else fetch_code_of(read.error)
        if code:
            self._metrics.partition_failed(ApiKey.FETCH, code.name)
        return PartitionFetched(
            index,
            code,
            read.high_watermark,
            read.last_stable,
            read.log_start,
            read.parts,
            aborted=read.aborted,
        )


class _Terms(TypedDict):
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    committed: bool
    work: ReadWork


def _terms(
    request: Request,
    body: FetchBody,
    places: Sequence[Place],
    turned: Mapping[TopicPartition, PartitionFetched],
) -> _Terms:
    """The terms of the read. A fetch with a partition that cannot be read is answered at once."""
    at_once = bool(turned) or any(place.partition is None for place in places)
    most = _HEAVY_WAIT_MS if request.work.is_heavy else body.max_wait_ms
    return {
        "max_bytes": max(body.max_bytes, 0),
        "min_bytes": 0 if at_once else body.min_bytes,
        "max_wait_ms": 0 if at_once else max(0, min(body.max_wait_ms, most)),
        "committed": body.isolation_level == _READ_COMMITTED,
        "work": request.work,
    }


def _spans(places: Iterable[Place], turned: Container[TopicPartition]) -> list[Span]:
    return [
        place.span()
        for place in places
        if place.partition is not None and place.partition not in turned
    ]


def _told(
    session: FetchSession, answers: Sequence[_Answer], checked: Iterable[Place]
) -> list[_Answer]:
    """Return the answers with news, and put the partitions to rest of which no more can come.

    A partition that was stirred during the wait stays awake, so that its topic and its epoch are
    checked before it rests.
    """
    may_rest = set(checked)
    told = []
    for answer in answers:
        if answer.place.tell(answer.fetched):
            told.append(answer)
        if answer.is_at_end and answer.place in may_rest:
            session.rest(answer.place)
        if answer.fetched.parts:
            session.move_back(answer.place)
    return told


def _response(
    request: Request, body: FetchBody, answers: Sequence[_Answer], session_id: int = NO_SESSION
) -> Body:
    by_topic = groupby(answers, key=lambda answer: answer.place.key.topic)
    return fetch_response(
        request.version,
        [_fetched(topic, [one.fetched for one in some]) for topic, some in by_topic],
        session_id=session_id,
        read_committed=body.isolation_level == _READ_COMMITTED,
    )


def _fetched(topic: TopicKey, partitions: Sequence[PartitionFetched]) -> TopicFetched:
    if isinstance(topic, str):
        return TopicFetched(topic, None, partitions)
    return TopicFetched(None, topic, partitions)


def _failed(index: int, code: ErrorCode) -> PartitionFetched:
    return PartitionFetched(index, code, NO_OFFSET, NO_OFFSET, NO_OFFSET)
