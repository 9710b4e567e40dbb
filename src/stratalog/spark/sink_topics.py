"""The topics of a task's rows, numbered, as arrays for the compiled loops."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog.batch.from_columns import Destination, Stickiness
from stratalog.batch.header import Codec, TimestampType
from stratalog.ids import Entropy, PartitionIndex
from stratalog.spark.sink_model import SinkTopic

_DEFAULT_CODEC = Codec.ZSTD
"""Blocks lie in an object store for years and cross a network with each read: small is better."""
_ZSTD_LEVEL = 1
"""Two to seven times as fast as Kafka's level 3, and as good for records of some hundred bytes."""
_STICKY_BYTES = 16 * 1024
"""The Java client's `batch.size`. Batches are larger, because a partition's turns are joined."""
_INT64 = np.iinfo(np.int64)


class Target(NamedTuple):
    topic: SinkTopic
    partition: PartitionIndex


class TopicNumbers:
    def __init__(
        self, known: Mapping[str, SinkTopic], codec: Codec | None, entropy: Entropy
    ) -> None:
        self._known = known
        self._codec = codec
        self._entropy = entropy
        self._numbers: dict[str, int] = {}
        self._met: list[SinkTopic] = []
        self.targets: list[Target] = []
        """The partitions of all topics so far."""
        self.destinations: list[Destination] = []
        """For each target, how its batches are encoded."""
        self.bases = np.empty(0, np.int64)
        """For each topic, the index of its first partition among the targets."""
        self.counts = np.empty(0, np.int64)
        """For each topic, its number of partitions."""
        self.sticky = Stickiness(np.empty(0, np.int64), np.empty(0, np.int64), _STICKY_BYTES)

    def number(self, name: str) -> int | None:
        """Return the topic's number. None if there is no such topic."""
        if name not in self._numbers:
            if name not in self._known:
                return None
            self._add(self._known[name])
        return self._numbers[name]

    def named(self, number: int) -> SinkTopic:
        return self._met[number]

    def time_bounds(self, now_ms: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return for each topic the first and the last time of records, as a broker checks them."""
        bounds = np.array([_time_bounds(topic, now_ms) for topic in self._met], np.int64)
        return bounds[:, 0], bounds[:, 1]

    def _add(self, topic: SinkTopic) -> None:
        self._numbers[topic.name] = len(self._met)
        self._met.append(topic)
        self.bases = np.append(self.bases, len(self.targets))
        self.counts = np.append(self.counts, topic.partition_count)
        for partition in range(topic.partition_count):
            self.targets.append(Target(topic, PartitionIndex(partition)))
            self.destinations.append(_destination(topic, partition, self._codec))
        # The first partition is random: otherwise every task would fill partition 0 first.
        first = int.from_bytes(self._entropy(4)) % topic.partition_count
        self.sticky = Stickiness(
            np.append(self.sticky.partitions, first),
            np.append(self.sticky.used_bytes, 0),
            _STICKY_BYTES,
        )


def _destination(topic: SinkTopic, partition: int, wanted: Codec | None) -> Destination:
    config = topic.config
    codec = config.compression
    if codec is None:
        codec = _DEFAULT_CODEC if wanted is None else wanted
    level = config.compression_level
    return Destination(
        name=f"{topic.name}-{partition}",
        codec=codec,
        level=_ZSTD_LEVEL if codec is Codec.ZSTD and level is None else level,
        max_batch_bytes=config.max_message_bytes,
        keep_codec=config.compression is not None,
    )


def _time_bounds(topic: SinkTopic, now_ms: int) -> tuple[int, int]:
    """Return the time bounds. As with Kafka's producers, no record is older than 1970."""
    config = topic.config
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return 0, int(_INT64.max)
    latest_ms = min(now_ms + config.timestamp_after_max_ms, int(_INT64.max))
    return max(now_ms - config.timestamp_before_max_ms, 0), latest_ms
