"""Fetch: reads the writes of any broker. No fetch sessions are kept, so clients send full requests.

A consumer that names its rack is sent on to the broker of its zone at which the readers of the
partition meet. A consumer that stays is served.
"""

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import UnknownTopicIdError
from stratalog.admin.rights import READ_TOPIC
from stratalog.control.log.model import Span
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.kafka.handlers.shared.leader_epochs import KnownEpoch, wrong_epochs
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, fetch_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.fetch_response import (
    FIRST_VERSION_WITH_RACK,
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    PartitionFetched,
    TopicFetched,
    fetch_response,
)
from stratalog.topic.model import PartitionRead

_READ_COMMITTED = 1
_FIRST_VERSION_WITH_EPOCHS = 9
_GONE = ErrorCode.unknown_topic_or_partition
_NO_SESSION_EPOCHS = (-1, 0)
"""-1 asks for no session, 0 for a new one. Both are answered without a session."""

_HEAVY_WAIT_MS = 5000
"""A fetch of many partitions holds memory while it waits. Clients wait for half a second."""

_TopicKey: TypeAlias = str | TopicId | None
"""A topic as the request names it. None is an id of zeros."""


class FetchPartition(NamedTuple):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1


class FetchTopic(NamedTuple):
    partitions: Sequence[FetchPartition]
    topic: str = ""
    topic_id: UUID | None = None


class FetchBody(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: Sequence[FetchTopic]
    session_id: int = 0
    session_epoch: int = -1
    rack_id: str = ""


class FetchHandler(Handler[FetchBody]):
    key = ApiKey.FETCH
    versions = Versions(4, 18, 12)
    rights = (READ_TOPIC,)
    body = FetchBody
    waits = True
    keeps_lane = True

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._reader = components.reader
        self._control = components.control
        self._membership = components.membership
        self._metrics = components.metrics
        self._failures = components.failures

    async def handle(self, request: Request, body: FetchBody) -> Body:
        if _continues_session(request, body):
            not_found = ErrorCode.fetch_session_id_not_found
            return fetch_response(request.version, [], error_code=not_found)
        body = _without_repeats(request, body)
        topics = await self._topics(request, body)
        spans = [
            Span(
                topic_id=topic.id,
                partition=PartitionIndex(partition.partition),
                offset=Offset(partition.fetch_offset),
                max_bytes=max(partition.partition_max_bytes, 0),
            )
            for topic, partition in _wanted(request, body, topics)
        ]
        not_read = await self._with_wrong_epochs(request, body, topics)
        not_read |= await self._sent_on(request, body, spans, not_read)
        unknown = any(_key(request, asked) not in topics for asked in body.topics)
        at_once = unknown or bool(not_read)
        reads = await self._reader.read(
            [span for span in spans if span.topic_partition not in not_read],
            max_bytes=max(body.max_bytes, 0),
            min_bytes=0 if at_once else body.min_bytes,
            max_wait_ms=0 if at_once else _wait_ms(request, body),
            committed=body.isolation_level == _READ_COMMITTED,
            work=request.work,
        )
        return self._response(request, body, topics, reads, not_read)

    async def _with_wrong_epochs(
        self, request: Request, body: FetchBody, topics: Mapping[_TopicKey, Topic]
    ) -> dict[TopicPartition, PartitionFetched]:
        """Return the answers for partitions of which the client knows another leader epoch."""
        if request.version < _FIRST_VERSION_WITH_EPOCHS:
            return {}
        wrong = await wrong_epochs(
            self._control,
            [
                KnownEpoch(
                    topic, PartitionIndex(partition.partition), partition.current_leader_epoch
                )
                for topic, partition in _wanted(request, body, topics)
            ],
        )
        for key, code in wrong.items():
            self._catalog.forget(key.topic_id)
            self._metrics.partition_failed(ApiKey.FETCH, code.name)
        return {key: _failed(key.partition, code) for key, code in wrong.items()}

    async def _sent_on(
        self,
        request: Request,
        body: FetchBody,
        spans: Sequence[Span],
        answered: Container[TopicPartition],
    ) -> dict[TopicPartition, PartitionFetched]:
        """Return the answers for partitions that should be read at another broker.

        An offset that is out of range is answered here: a consumer that hears of it elsewhere
        comes back to the leader, which must not send it away again.
        """
        if request.version < FIRST_VERSION_WITH_RACK or not body.rack_id:
            return {}
        nearer = {
            span.topic_partition: broker.broker_id
            for span in spans
            if span.topic_partition not in answered
            and (broker := self._membership.nearer_broker(span.topic_partition, body.rack_id))
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

    def refuse(self, request: Request, body: FetchBody, error: Exception) -> Body:
        code = code_of(error)
        topics = [
            _fetched(request, asked, [_failed(one.partition, code) for one in asked.partitions])
            for asked in body.topics
        ]
        top_level = code if request.version >= FIRST_VERSION_WITH_SESSIONS else 0
        return fetch_response(request.version, topics, error_code=top_level)

    async def _topics(self, request: Request, body: FetchBody) -> Mapping[_TopicKey, Topic]:
        if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            ids = [TopicId(asked.topic_id) for asked in body.topics if asked.topic_id is not None]
            identified = await self._catalog.with_ids(ids)
            return dict[_TopicKey, Topic](identified.items())
        named = await self._catalog.named([asked.topic for asked in body.topics])
        return dict[_TopicKey, Topic](named.items())

    def _response(
        self,
        request: Request,
        body: FetchBody,
        topics: Mapping[_TopicKey, Topic],
        reads: Sequence[PartitionRead],
        not_read: Mapping[TopicPartition, PartitionFetched],
    ) -> Body:
        in_order = iter(reads)
        answers = []
        for asked in body.topics:
            topic = topics.get(_key(request, asked))
            partitions = [
                self._unknown(request, one.partition)
                if topic is None
                else not_read.get(TopicPartition(topic.id, PartitionIndex(one.partition)))
                or self._read(topic, one.partition, next(in_order))
                for one in asked.partitions
            ]
            if topic is not None and any(one.error_code == _GONE for one in partitions):
                self._catalog.forget(topic.id)
            answers.append(_fetched(request, asked, partitions))
        committed = body.isolation_level == _READ_COMMITTED
        return fetch_response(request.version, answers, read_committed=committed)

    def _unknown(self, request: Request, index: int) -> PartitionFetched:
        error: StratalogError = UnknownTopicError("no topic has this name")
        if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            error = UnknownTopicIdError("no topic has this id")
        return self._partition(index, PartitionRead(error=error))

    def _read(self, topic: Topic, index: int, read: PartitionRead) -> PartitionFetched:
        if read.error is not None:
            self._failures.note(topic.name, index, read.error)
        return self._partition(index, read)

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


def _wait_ms(request: Request, body: FetchBody) -> int:
    most = _HEAVY_WAIT_MS if request.work.is_heavy else body.max_wait_ms
    return max(0, min(body.max_wait_ms, most))


def _without_repeats(request: Request, body: FetchBody) -> FetchBody:
    """Answer a partition once however often it is named, with its last entry, as Kafka does.

    No client repeats a partition. Each repeat would cost a look, and hold bytes of the answer.
    """
    asked = [
        (_key(request, topic), one.partition) for topic in body.topics for one in topic.partitions
    ]
    last = {key: place for place, key in enumerate(asked)}
    if len(last) == len(asked):
        return body
    kept, places = set(last.values()), itertools.count()
    topics = [
        topic._replace(partitions=[one for one in topic.partitions if next(places) in kept])
        for topic in body.topics
    ]
    return body._replace(topics=[topic for topic in topics if topic.partitions])


def _continues_session(request: Request, body: FetchBody) -> bool:
    if request.version < FIRST_VERSION_WITH_SESSIONS:
        return False
    return body.session_id != 0 or body.session_epoch not in _NO_SESSION_EPOCHS


def _wanted(
    request: Request, body: FetchBody, topics: Mapping[_TopicKey, Topic]
) -> Iterator[tuple[Topic, FetchPartition]]:
    """The requested partitions of topics that exist."""
    for asked in body.topics:
        topic = topics.get(_key(request, asked))
        if topic is not None:
            for partition in asked.partitions:
                yield topic, partition


def _key(request: Request, asked: FetchTopic) -> _TopicKey:
    if request.version < FIRST_VERSION_WITH_TOPIC_IDS:
        return asked.topic
    return TopicId(asked.topic_id) if asked.topic_id else None


def _fetched(
    request: Request, asked: FetchTopic, partitions: Sequence[PartitionFetched]
) -> TopicFetched:
    if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return TopicFetched(None, asked.topic_id, partitions)
    return TopicFetched(asked.topic, None, partitions)


def _failed(index: int, code: ErrorCode) -> PartitionFetched:
    return PartitionFetched(index, code, NO_OFFSET, NO_OFFSET, NO_OFFSET)
