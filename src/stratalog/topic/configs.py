"""The effective configs of a topic: typed, and with the defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stratalog.batch.header import Codec, TimestampType
from stratalog.topic_configs import DEFINITIONS, check_configs

_INT64_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs that have an effect here."""

    retention_ms: int | None
    """None: for ever."""
    retention_bytes: int | None
    """None: no bound."""
    max_message_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: Codec | None
    """None: batches stay as their producers encoded them."""
    compression_level: int | None
    """None: the codec's own default."""
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    local_retention_ms: int | None
    """None: the cluster's tiering age."""
    local_retention_bytes: int | None
    """None: no bound of its own."""
    accept_undecodable_batches: bool


def effective(defaults: Mapping[str, str], configs: Mapping[str, str]) -> TopicConfig:
    """Combine the configs of a topic, the defaults of the broker and the defaults of Kafka.

    Raises `TopicConfigError` if a config that has an effect here has an impossible value, which
    another version may have stored.
    """
    return _effective(tuple(defaults.items()), tuple(configs.items()))


@lru_cache(maxsize=4096)
def _effective(
    defaults: tuple[tuple[str, str], ...], configs: tuple[tuple[str, str], ...]
) -> TopicConfig:
    given = dict(defaults) | dict(configs)
    # A config without effect must not keep a topic from being used, whatever its value is.
    chosen = check_configs({name: value for name, value in given.items() if _has_effect(name)})

    def value(name: str) -> str:
        return chosen.get(name, DEFINITIONS[name].default)

    def bound(name: str) -> int | None:
        number = int(value(name))
        return number if number >= 0 else None

    def local_bound(name: str) -> int | None:
        number = int(value(name))
        return None if number == -2 else _INT64_LAST if number == -1 else number

    return TopicConfig(
        retention_ms=bound("retention.ms"),
        retention_bytes=bound("retention.bytes"),
        max_message_bytes=int(value("max.message.bytes")),
        timestamp_type=_TIMESTAMP_TYPES[value("message.timestamp.type")],
        timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
        compression=_CODECS[value("compression.type")],
        compression_level=_level_of(value("compression.type"), chosen),
        segment_bytes=int(value("segment.bytes")),
        segment_ms=int(value("segment.ms")),
        index_interval_bytes=int(value("index.interval.bytes")),
        local_retention_ms=local_bound("local.retention.ms"),
        local_retention_bytes=local_bound("local.retention.bytes"),
        accept_undecodable_batches=value("stratalog.accept.undecodable.batches") == "true",
    )


def _has_effect(name: str) -> bool:
    return name in DEFINITIONS and DEFINITIONS[name].has_effect


def _level_of(codec: str, chosen: Mapping[str, str]) -> int | None:
    """Return the level that the topic asks for. The level -1 of gzip means its default."""
    level = chosen.get(f"compression.{codec}.level")
    return None if level is None or (codec == "gzip" and level == "-1") else int(level)


_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}

_CODECS: Mapping[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
