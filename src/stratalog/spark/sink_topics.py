"""The topics that a task has met so far, numbered, with what the compiled loops want to know."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog.batch.from_columns import Destination, Stickiness
from stratalog.batch.header import Codec, TimestampType
from stratalog.ids import Entropy, PartitionIndex
from stratalog.spark.sink_model import SinkTopic

_DEFAULT_CODEC = Codec.ZSTD
"""What lies in an object store for years, and crosses a network with each read, should be small."""
_ZSTD_LEVEL = 1
"""Two to seven times as fast as Kafka's level 3, and no worse on records of some hundred bytes."""
_STICKY_BYTES = 16 * 1024
"""As the Java client's `batch.size`. Batches are larger: a partition's turns are put together."""
_INT64 = np.iinfo(np.int64)


class Target(NamedTuple):
    topic: SinkTopic
    partition: PartitionIndex


class MetTopics:
    def __init__(
        self, known: Mapping[str, SinkTopic], codec: Codec | None, entropy: Entropy
    ) -> None:
        self._known = known
        self._codec = codec
        self._entropy = entropy
        self._numbers: dict[str, int] = {}
        self._met: list[SinkTopic] = []
        self.targets: list[Target] = []
        """The partitions of all topics met."""
        self.destinations: list[Destination] = []
        """How batches for each target are made."""
        self.bases = np.empty(0, np.int64)
        """Per topic, the place of its first partition among the targets."""
        self.counts = np.empty(0, np.int64)
        """Per topic, its number of partitions."""
        self.sticky = Stickiness(np.empty(0, np.int64), np.empty(0, np.int64), _STICKY_BYTES)

    def number(self, name: str) -> int | None:
        """The topic's number. None if there is no such topic."""
        if name not in self._numbers:
            if name not in self._known:
                return None
            self._meet(self._known[name])
        return self._numbers[name]

    def named(self, number: int) -> SinkTopic:
        return self._met[number]

    def time_bounds(self, now_ms: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per topic, the first and the last time that its records may have, as a broker checks."""
        bounds = np.array([_time_bounds(topic, now_ms) for topic in self._met], np.int64)
        return bounds[:, 0], bounds[:, 1]

    def _meet(self, topic: SinkTopic) -> None:
        self._numbers[topic.name] = len(self._met)
        self._met.append(topic)
        self.bases = np.append(self.bases, len(self.targets))
        self.counts = np.append(self.counts, topic.partition_count)
        for partition in range(topic.partition_count):
            self.targets.append(Target(topic, PartitionIndex(partition)))
            self.destinations.append(_destination(topic, partition, self._codec))
        # A partition by chance to begin with: every task would fill the first one otherwise.
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
    """No record may be older than 1970, as with Kafka's producers."""
    config = topic.config
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return 0, int(_INT64.max)
    latest_ms = min(now_ms + config.timestamp_after_max_ms, int(_INT64.max))
    return max(now_ms - config.timestamp_before_max_ms, 0), latest_ms
