"""A Kafka cluster from which topics are adopted, or to which segments are exported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)

from stratalog.cli.client import (
    REQUEST_SECONDS,
    KafkaAdmin,
    as_our_error,
    client_config,
    our_errors,
)
from stratalog.cli.errors import BrokerRefusedError, BrokerUnreachableError, NotAcknowledgedError
from stratalog.cli.record_reader import Edge, RecordReader
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicId
from stratalog.segment.keys import parse_uuid_text
from stratalog.segment.remote_log_metadata import METADATA_TOPIC

_ALWAYS = frozenset({"retention.ms", "retention.bytes"})
"""Adopted even if the topic only has them by default: the default here may delete records that the
Kafka cluster would keep."""
_FLUSH_RECORDS = 10_000
"""The queue of the client holds ten times as many."""


class LiveOffsets(NamedTuple):
    log_start: Offset
    log_end: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    topic_id: TopicId
    offsets: Mapping[PartitionIndex, LiveOffsets]
    configs: Mapping[str, str]


class ForeignCluster:
    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._options = dict(options)
        self._admin = KafkaAdmin(bootstrap, options)

    def topic(self, name: str) -> LiveTopic:
        with self._explained():
            indexes = sorted(self._admin.topic(name).partitions)
            return LiveTopic(
                topic_id=self._topic_id(name),
                offsets=self._offsets(name, indexes),
                configs=self._configs(name),
            )

    def metadata_partition_count(self) -> int:
        with self._explained():
            return len(self._admin.topic(METADATA_TOPIC).partitions)

    def metadata_values(self, partitions: Iterable[int]) -> list[bytes | None]:
        """Return the values of all records in these partitions of the metadata topic, in order."""
        values: list[bytes | None] = []
        with self._explained():
            reader = RecordReader(METADATA_TOPIC, self._bootstrap, self._options)
            try:
                spans = [
                    span
                    for partition in sorted(partitions)
                    for span in reader.spans(Edge.BEGINNING, partition=partition)
                ]
                for messages in reader.batches(spans, follow=False):
                    values += [message.value() for message in messages]
            finally:
                reader.close()
        return values

    def append_metadata(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Produce values to partitions of the metadata topic, as Kafka's brokers do."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        settings = {**client_config(self._bootstrap), **self._options, "acks": "all"}
        with self._explained(), our_errors(self._bootstrap):
            producer = Producer({**settings, "enable.idempotence": True})
            for start in range(0, len(records), _FLUSH_RECORDS):
                for partition, value in records[start : start + _FLUSH_RECORDS]:
                    producer.produce(
                        METADATA_TOPIC, value, partition=partition, on_delivery=delivered
                    )
                left = producer.flush(REQUEST_SECONDS)
                if failures:
                    raise as_our_error(failures[0], self._bootstrap)
                if left:
                    raise NotAcknowledgedError(
                        f"{self._bootstrap} did not acknowledge {left} records: export again;"
                        " Kafka accepts the same records twice"
                    )

    def _topic_id(self, name: str) -> TopicId:
        [future] = self._admin.client.describe_topics(TopicCollection([name])).values()
        found = parse_client_uuid(str(self._admin.answer(future).topic_id))
        if found is None or found == UUID(int=0):
            raise BrokerRefusedError(
                f"{self._bootstrap} does not report the id of {name}: tiered storage needs brokers"
                " that give ids to topics"
            )
        return TopicId(found)

    def _offsets(self, name: str, indexes: Sequence[int]) -> dict[PartitionIndex, LiveOffsets]:
        earliest = self._list_offsets(name, indexes, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._list_offsets(name, indexes, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {
            PartitionIndex(index): LiveOffsets(
                Offset(earliest[index][0]),
                Offset(latest[index][0]),
                LeaderEpoch(latest[index][1]),
            )
            for index in indexes
        }

    def _list_offsets(
        self, name: str, indexes: Sequence[int], spec: OffsetSpec
    ) -> dict[int, tuple[int, int]]:
        """Offset and leader epoch by partition."""
        wanted = {TopicPartition(name, index): spec for index in indexes}
        answers = {
            place.partition: self._admin.answer(future)
            for place, future in self._admin.client.list_offsets(wanted).items()
        }
        return {
            index: (found.offset, -1 if found.leader_epoch is None else found.leader_epoch)
            for index, found in answers.items()
        }

    def _configs(self, name: str) -> dict[str, str]:
        """The configs set for the topic or for the cluster, and always the bounds of retention."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        [future] = self._admin.client.describe_configs([resource]).values()
        default = ConfigSource.DEFAULT_CONFIG.value
        return {
            config: str(entry.value)
            for config, entry in sorted(self._admin.answer(future).items())
            if entry.value is not None and (entry.source != default or config in _ALWAYS)
        }

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokerUnreachableError as error:
            raise BrokerUnreachableError(
                f"no Kafka broker answers at {self._bootstrap}: check --kafka-bootstrap, and give"
                " the client's security options with --kafka-option"
            ) from error


def parse_client_uuid(text: str) -> UUID | None:
    """Read an id as librdkafka writes it: not in the alphabet of base 64 that Kafka uses."""
    return parse_uuid_text(text.replace("+", "-").replace("/", "_"))
