"""Produce: records enter the order of appends when accepted, and are answered when durable."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import UnknownTopicIdError
from stratalog.admin.rights import WRITE_TOPIC
from stratalog.batch.errors import record_faults_of
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import NO_OFFSET, PartitionIndex, TopicId
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Answer, Body, Request, TwoStageHandler
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.errors import InvalidRecordsError, RequiredAcksError
from stratalog.kafka.wire.primitives import ZERO_UUID
from stratalog.kafka.wire.produce_response import PartitionProduced, TopicProduced, produce_response
from stratalog.topic.append import PendingAppend
from stratalog.topic.errors import TransactionsUnsupportedError
from stratalog.topic.model import PartitionWrite, PartitionWritten

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    """One partition of a request: its position among the writes, or the reason to refuse it."""

    index: int
    position: int
    error: Exception | None = None


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

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._appender = components.appender
        self._metrics = components.metrics

    async def accept(self, request: Request, body: ProduceBody) -> Answer:
        writes: list[PartitionWrite] = []
        pending: list[list[_Pending]] = []
        written: PendingAppend | None = None
        failure: Exception | None = None
        try:
            _check(body)
            for topic, found in zip(
                body.topic_data, await self._topics(body.topic_data), strict=True
            ):
                pending.append(_collect(topic, found, writes))
            if writes:
                written = await self._appender.append(writes)
        except Exception as error:
            failure = error
        return lambda: self._answer(request, body, pending, written, failure)

    async def _topics(self, topics: Sequence[TopicRecords]) -> list[Topic | None]:
        """Find the topics in the catalog. A topic that is missing there does not exist.

        If the control plane does not answer, topics are taken as they were last seen. A failure
        would let the next request of the same producer enter the order before this one. A commit
        refuses batches of topics that are gone.
        """
        found = [self._cached(topic) for topic in topics]
        if None not in found:
            return found
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

    async def _answer(
        self,
        request: Request,
        produce: ProduceBody,
        pending: Sequence[Sequence[_Pending]],
        written: PendingAppend | None,
        failure: Exception | None,
    ) -> Body | None:
        answers: list[PartitionWritten] = []
        try:
            if written is not None:
                answers = await written.answers()
        except Exception as error:
            failure = error
        await request.work.resume_turn()
        if failure is not None and code_of(failure) is ErrorCode.unknown_server_error:
            log.error("A Produce of client %r failed", request.client_id, exc_info=failure)
        if failure is not None:
            topics = self._all_failed(produce, failure)
        else:
            topics = [
                self._produced(topic, parts, answers)
                for topic, parts in zip(produce.topic_data, pending, strict=True)
            ]
        _log_refused(request, topics, acks=produce.acks)
        if produce.acks == 0:
            return None
        return [produce_response(request.version, topics)]

    def _produced(
        self,
        topic: TopicRecords,
        pending: Sequence[_Pending],
        answers: Sequence[PartitionWritten],
    ) -> TopicProduced:
        partitions = []
        for one in pending:
            answer = PartitionWritten() if one.error else answers[one.position]
            error = one.error or answer.error
            partitions.append(
                self._failed(one.index, error) if error else _succeeded(one.index, answer)
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
) -> list[_Pending]:
    """Add the partitions of the topic that can be written to the writes."""
    pending = []
    for partition in records.partition_data:
        error = _problem(records, topic, partition)
        pending.append(_Pending(partition.index_, len(writes), error))
        if error is None:
            assert topic is not None
            assert partition.records is not None
            writes.append(
                PartitionWrite(
                    topic=topic,
                    partition=PartitionIndex(partition.index_),
                    data=partition.records,
                )
            )
    return pending


def _problem(
    records: TopicRecords, topic: Topic | None, partition: PartitionRecords
) -> StratalogError | None:
    if topic is None and records.name is None:
        # An id of zeros is read as None.
        return UnknownTopicIdError(f"no topic has the id {records.topic_id or ZERO_UUID}")
    if topic is None or partition.index_ < 0:
        return UnknownTopicError(f"there is no partition {records.name}-{partition.index_}")
    if not partition.records:
        return InvalidRecordsError(f"no records for partition {topic.name}-{partition.index_}")
    return None


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


def _succeeded(index: int, answer: PartitionWritten) -> PartitionProduced:
    return PartitionProduced(
        index, 0, answer.base_offset, answer.append_time_ms, answer.log_start, None
    )
