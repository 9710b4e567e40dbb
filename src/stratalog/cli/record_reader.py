"""Reads a topic from any offset or time, without a consumer group and without committing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stratalog.cli.client import (
    CONNECT_SECONDS,
    REQUEST_SECONDS,
    as_our_error,
    client_config,
    no_such_topic,
    our_errors,
)
from stratalog.cli.errors import NoSuchPlaceError

_POLL_SECONDS = 0.2
_POLL_RECORDS = 1000


class Edge(Enum):
    BEGINNING = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class FromOffset:
    offset: int
    """Negative counts back from the end."""


@dataclass(frozen=True, slots=True)
class FromTime:
    timestamp_ms: int


Start: TypeAlias = Edge | FromOffset | FromTime


class Span(NamedTuple):
    """The offsets to read of one partition: `[start, end)`, where the end is the present one."""

    partition: int
    start: int
    end: int


class RecordReader:
    def __init__(
        self, topic: str, bootstrap: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._topic = topic
        self._bootstrap = bootstrap
        self._connection_error: KafkaError | None = None
        self._consumer = Consumer(
            client_config(
                bootstrap,
                **{
                    # The client requires a group. Nothing is ever committed under this one.
                    "group.id": "stratalog-cli",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "check.crcs": True,
                    "error_cb": self._on_error,
                    **(options or {}),
                },
            )
        )

    def close(self) -> None:
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error

    def spans(self, start: Start, *, partition: int | None) -> list[Span]:
        """Resolve the start and the present end of one partition, or of all."""
        with our_errors(self._bootstrap):
            indexes = self._partitions()
            if partition is not None and partition not in indexes:
                raise NoSuchPlaceError(
                    f"{self._topic} has no partition {partition}, only 0 to {indexes[-1]}"
                )
            wanted = indexes if partition is None else [partition]
            return [self._span(index, start) for index in wanted]

    def _partitions(self) -> list[int]:
        topics = self._consumer.list_topics(timeout=CONNECT_SECONDS).topics
        if self._topic not in topics:
            raise no_such_topic(self._topic, topics)
        return sorted(topics[self._topic].partitions)

    def _span(self, partition: int, start: Start) -> Span:
        place = TopicPartition(self._topic, partition)
        bounds = self._consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS)
        if bounds is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        low, high = bounds
        match start:
            case Edge.BEGINNING:
                return Span(partition, low, high)
            case Edge.END:
                return Span(partition, high, high)
            case FromOffset(offset):
                return Span(partition, self._checked(partition, offset, low, high), high)
            case FromTime(timestamp_ms):
                place.offset = timestamp_ms
                (found,) = self._consumer.offsets_for_times([place], timeout=REQUEST_SECONDS)
                return Span(partition, found.offset if found.offset >= 0 else high, high)

    def _checked(self, partition: int, offset: int, low: int, high: int) -> int:
        if offset < 0:
            return max(low, high + offset)
        if low <= offset <= high:
            return offset
        raise NoSuchPlaceError(
            f"offset {offset} is outside partition {partition} of {self._topic}, "
            f"which begins at {low} and ends before {high}"
        )

    def batches(self, spans: list[Span], *, follow: bool) -> Iterator[list[Message]]:
        """Yield records in batches until every span is read or, when following, for ever."""
        wanted = spans if follow else [span for span in spans if span.start < span.end]
        ends = {span.partition: span.end for span in wanted}
        self._consumer.assign(
            [TopicPartition(self._topic, span.partition, span.start) for span in wanted]
        )
        while ends:
            messages = self._consumer.consume(_POLL_RECORDS, timeout=_POLL_SECONDS)
            records = list(self._records(messages, ends, follow=follow))
            if records:
                yield records
            elif self._connection_error is not None and not follow:
                raise as_our_error(self._connection_error, self._bootstrap)

    def _records(
        self, messages: list[Message], ends: dict[int, int], *, follow: bool
    ) -> Iterator[Message]:
        """Yield the records inside the spans, and remove finished partitions from `ends`."""
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise as_our_error(error, self._bootstrap)
            if follow or partition not in ends:
                if follow and error is None:
                    yield message
                continue
            # The client's notice of the end counts, too: the last offsets of a partition may be
            # transaction markers, which the client does not deliver.
            if error is not None or offset >= ends[partition] - 1:
                done = ends.pop(partition)
                if error is not None or offset >= done:
                    continue
            yield message
