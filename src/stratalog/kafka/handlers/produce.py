"""Produce: records enter the order of appends when accepted, and are answered when durable."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import UnknownTopicIdError
from stratalog.admin.rights import WRITE_TOPIC
from stratalog.batch.errors import record_faults_of
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import NO_OFFSET, PartitionIndex, TopicId
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Pending, Request, TwoStageHandler
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.errors import InvalidRecordsError, RequiredAcksError
from stratalog.kafka.wire.primitives import ZERO_UUID
from stratalog.kafka.wire.produce_response import PartitionProduced, TopicProduced, produce_response
from stratalog.topic.append import PendingAppend
from stratalog.topic.errors import TransactionsUnsupportedError
from stratalog.topic.model import PartitionWrite, PartitionWritten

log = logging.getLogger(__name__)


class _Part(NamedTuple):
    """One partition of a request: its position among the writes, or the reason to refuse it."""

    index_: int
    position: int
    error: StratalogError | None


_Parts: TypeAlias = Sequence[Sequence[_Part]]
"""The partitions of a request, topic by topic."""


class PartitionRecords(NamedTuple):
    index_: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """Versions with topic ids have no topic names."""

    partition_data: Sequence[PartitionRecords]
    name: str | None = None
    topic_id: UUID | None = None


class ProduceBody(NamedTuple):
    transactional_id: str | None
    acks: int
    topic_data: Sequence[TopicRecords]


class ProduceHandler(TwoStageHandler[ProduceBody]):
    key = ApiKey.PRODUCE
    versions = Versions(3, 13, 9)
    rights = (WRITE_TOPIC,)
    body = ProduceBody
    in_every_worker = True

    def __init__(self, components: DataComponents) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._appender = components.appender
        self._metrics = components.metrics

    def accept(self, request: Request, body: ProduceBody) -> Pending | Coroutine[Any, Any, Pending]:
        try:
            _check(body)
        except StratalogError as error:
            return self._refused(request, body, error)
        found = []
        for topic in body.topic_data:
            known = self._cached(topic)
            if known is None:
                return self._accept_looked_up(request, body)
            found.append(known)
        return self._append(request, body, found)

    async def _accept_looked_up(self, request: Request, body: ProduceBody) -> Pending:
        try:
            found = await self._topics(body.topic_data)
        except Exception as error:
            return self._refused(request, body, error)
        pending = self._append(request, body, found)
        return pending if isinstance(pending, Pending) else await pending

    def _append(
        self, request: Request, body: ProduceBody, found: Sequence[Topic | None]
    ) -> Pending | Coroutine[Any, Any, Pending]:
        writes: list[PartitionWrite] = []
        parts = [
            _collect(topic, known, writes)
            for topic, known in zip(body.topic_data, found, strict=True)
        ]
        try:
            begun = self._appender.begin(writes, request.session.number)
        except Exception as error:
            return self._refused(request, body, error)
        if isinstance(begun, PendingAppend):
            return self._pending(request, body, parts, begun)
        return self._append_later(request, body, parts, begun)

    async def _append_later(
        self,
        request: Request,
        body: ProduceBody,
        parts: _Parts,
        begun: Coroutine[Any, Any, PendingAppend],
    ) -> Pending:
        try:
            return self._pending(request, body, parts, await begun)
        except Exception as error:
            return self._refused(request, body, error)

    def _pending(
        self, request: Request, body: ProduceBody, parts: _Parts, written: PendingAppend
    ) -> Pending:
        return Pending(written.done, partial(self._answer, request, body, parts, written))

    def _refused(self, request: Request, body: ProduceBody, error: Exception) -> Pending:
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_result(None)
        return Pending(refused, partial(self._answer_failed, request, body, error))

    async def _topics(self, topics: Sequence[TopicRecords]) -> list[Topic | None]:
        """Find the topics in the catalog. A topic that is missing there does not exist.

        If the control plane does not answer, topics are taken as they were last seen. A failure
        would let the next request of the same producer enter the order before this one. A commit
        refuses batches of topics that are gone.
        """
        try:
            return await self._looked_up(topics)
        except RetriableError:
            found = [self._last_known(topic) for topic in topics]
            if None in found:
                raise
            return found

    async def _looked_up(self, topics: Sequence[TopicRecords]) -> list[Topic | None]:
        names = [topic.name for topic in topics if topic.name is not None]
        ids = [TopicId(topic.topic_id) for topic in topics if topic.topic_id is not None]
        by_name = await self._catalog.named(names) if names else {}
        by_id = await self._catalog.with_ids(ids) if ids else {}
        return [
            by_name.get(topic.name or "")
            if topic.topic_id is None
            else by_id.get(TopicId(topic.topic_id))
            for topic in topics
        ]

    def _cached(self, topic: TopicRecords) -> Topic | None:
        if topic.topic_id is not None:
            return self._catalog.cached_id(TopicId(topic.topic_id))
        return self._catalog.cached(topic.name or "")

    def _last_known(self, topic: TopicRecords) -> Topic | None:
        if topic.topic_id is not None:
            return self._catalog.last_known_id(TopicId(topic.topic_id))
        return self._catalog.last_known(topic.name or "")

    def _answer(
        self, request: Request, body: ProduceBody, parts: _Parts, written: PendingAppend
    ) -> Body | None:
        try:
            answers = written.answers()
        except Exception as error:
            return self._answer_failed(request, body, error)
        topics = [
            self._produced(topic, own, answers)
            for topic, own in zip(body.topic_data, parts, strict=True)
        ]
        return _response(request, body, topics)

    def _answer_failed(self, request: Request, body: ProduceBody, error: Exception) -> Body | None:
        if code_of(error) is ErrorCode.unknown_server_error:
            log.error("A Produce of client %r failed", request.client_id, exc_info=error)
        return _response(request, body, self._all_failed(body, error))

    def _produced(
        self,
        topic: TopicRecords,
        parts: Sequence[_Part],
        answers: Sequence[PartitionWritten],
    ) -> TopicProduced:
        partitions = []
        for index, position, refusal in parts:
            error, base_offset, append_time_ms, log_start = (
                answers[position] if refusal is None else PartitionWritten(refusal)
            )
            partitions.append(
                PartitionProduced(index, 0, base_offset, append_time_ms, log_start, None)
                if error is None
                else self._failed(index, error)
            )
        return TopicProduced(topic.name, topic.topic_id, partitions)

    def _all_failed(self, produce: ProduceBody, error: Exception) -> list[TopicProduced]:
        return [
            TopicProduced(
                topic.name,
                topic.topic_id,
                [self._failed(partition.index_, error) for partition in topic.partition_data],
            )
            for topic in produce.topic_data
        ]

    def _failed(self, index: int, error: Exception) -> PartitionProduced:
        code = code_of(error)
        self._metrics.partition_failed(ApiKey.PRODUCE, code.name)
        faults = record_faults_of(error)
        return PartitionProduced(index, code, NO_OFFSET, -1, NO_OFFSET, message_of(error), faults)


def _check(produce: ProduceBody) -> None:
    if produce.acks not in (-1, 0, 1):
        raise RequiredAcksError(f"acks={produce.acks}: it must be -1, 0 or 1")
    if produce.transactional_id is not None:
        raise TransactionsUnsupportedError("this broker does not support transactions yet")


def _collect(
    records: TopicRecords, topic: Topic | None, writes: list[PartitionWrite]
) -> list[_Part]:
    """Add the partitions of the topic that can be written to the writes."""
    parts = []
    for index, data in records.partition_data:
        if topic is None or index < 0 or not data:
            parts.append(_Part(index, len(writes), _problem(records, topic, index)))
        else:
            parts.append(_Part(index, len(writes), None))
            writes.append(PartitionWrite(topic, PartitionIndex(index), data))
    return parts


def _problem(records: TopicRecords, topic: Topic | None, index: int) -> StratalogError:
    if topic is None and records.name is None:
        # An id of zeros is read as None.
        return UnknownTopicIdError(f"no topic has the id {records.topic_id or ZERO_UUID}")
    if topic is None or index < 0:
        return UnknownTopicError(f"there is no partition {records.name}-{index}")
    return InvalidRecordsError(f"no records for partition {topic.name}-{index}")


def _response(request: Request, body: ProduceBody, topics: Sequence[TopicProduced]) -> Body | None:
    _log_refused(request, topics, acks=body.acks)
    return None if body.acks == 0 else [produce_response(request.version, topics)]


def _log_refused(request: Request, topics: Sequence[TopicProduced], *, acks: int) -> None:
    """A producer with acks=0 gets no answer, so its failures can only be logged."""
    for topic in topics:
        for one in topic.partitions:
            if one.error_code:
                log.info(
                    "A write of client %r on %s with acks=%d to %s-%d failed: %s",
                    request.client_id,
                    request.session,
                    acks,
                    topic.name or topic.topic_id,
                    one.partition,
                    one.error_message,
                )
