"""Descriptions of configs: each value that was given, and its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stratalog.settings import BrokerSettings, Settings
from stratalog.topic_configs import DEFINITIONS, ConfigDefinition, ConfigType

LOG_DIR = "/objects"
"""Stands for the object store where tools expect a path. No disk has this folder."""


class ResourceType(IntEnum):
    """A thing with configs, numbered as in the requests about them."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Candidate(NamedTuple):
    """A value that was given somewhere, under the name that it has there."""

    source: ConfigSource
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    name: str
    type: ConfigType
    documentation: str
    read_only: bool
    candidates: Sequence[Candidate]
    """Every value that was given. The first one is in force."""


_BROKER_NAMES = {
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "cleanup.policy": "log.cleanup.policy",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Kafka's names for the broker's defaults of topic configs."""


def describe_topic(
    defaults: Mapping[str, str], configs: Mapping[str, str]
) -> list[DescribedConfig]:
    """All configs of a topic, given the broker's defaults and the configs set on the topic."""
    return [_topic_config(definition, defaults, configs) for definition in DEFINITIONS.values()]


def _topic_config(
    definition: ConfigDefinition, defaults: Mapping[str, str], configs: Mapping[str, str]
) -> DescribedConfig:
    candidates = _default_candidates(definition, defaults)
    name = definition.name
    if name in configs:
        candidates.insert(0, Candidate(ConfigSource.TOPIC, name, configs[name]))
    return DescribedConfig(
        name=name,
        type=definition.type,
        documentation=definition.documentation,
        read_only=False,
        candidates=candidates,
    )


def _default_candidates(
    definition: ConfigDefinition, defaults: Mapping[str, str]
) -> list[Candidate]:
    """The values of a config that a topic does not set: the broker's default, then Kafka's."""
    name = _BROKER_NAMES.get(definition.name, definition.name)
    candidates = [Candidate(ConfigSource.DEFAULT, name, definition.default)]
    if definition.name in defaults:
        own = Candidate(ConfigSource.STATIC_BROKER, name, defaults[definition.name])
        candidates.insert(0, own)
    return candidates


def describe_broker(settings: Settings, broker_id: int) -> list[DescribedConfig]:
    """The settings of a broker under the names that Kafka's tools look for."""
    defaults = {one.name: one.value for one in _settings(Settings(), broker_id)}
    return [
        *(_broker_config(one, defaults[one.name]) for one in _settings(settings, broker_id)),
        *(_broker_default(topic_name, settings.topic) for topic_name in _BROKER_NAMES),
    ]


class _Setting(NamedTuple):
    name: str
    type: ConfigType
    value: str
    documentation: str


_CLEANER = _Setting(
    "log.cleaner.backoff.ms",
    ConfigType.LONG,
    "15000",
    "The pause of Kafka's log cleaner. Nothing is cleaned here: no effect.",
)


def _settings(settings: Settings, broker_id: int) -> list[_Setting]:
    return [
        *_identity_settings(settings.broker, broker_id),
        *_topic_settings(settings.broker),
        *_connection_settings(settings.broker),
        *_limit_settings(settings),
        _CLEANER,
    ]


def _identity_settings(broker: BrokerSettings, broker_id: int) -> list[_Setting]:
    text = ConfigType.STRING
    listening = "The address on which this broker accepts clients."
    advertised = "The address that clients are given to connect to."
    store = "The object store: brokers keep no data on disk."
    return [
        _Setting("broker.id", ConfigType.INT, str(broker_id), "The number of this broker."),
        _Setting("broker.rack", text, broker.rack or "", "The zone of this broker."),
        _Setting("listeners", text, broker.listen, listening),
        _Setting("advertised.listeners", text, broker.advertise or broker.listen, advertised),
        _Setting("log.dirs", text, LOG_DIR, store),
    ]


def _topic_settings(broker: BrokerSettings) -> list[_Setting]:
    return [
        _Setting(
            "auto.create.topics.enable",
            ConfigType.BOOLEAN,
            str(broker.auto_create_topics).lower(),
            "Whether a topic is created when a client asks for it for the first time.",
        ),
        _Setting(
            "delete.topic.enable", ConfigType.BOOLEAN, "true", "Topics can always be deleted."
        ),
        _Setting(
            "num.partitions",
            ConfigType.INT,
            str(broker.default_partitions),
            "The partitions of a topic that is created without a number.",
        ),
        _Setting(
            "default.replication.factor",
            ConfigType.INT,
            "1",
            "Always 1: the object store replicates.",
        ),
    ]


def _connection_settings(broker: BrokerSettings) -> list[_Setting]:
    return [
        _Setting(
            "max.connections",
            ConfigType.INT,
            str(broker.max_connections),
            "The most connections of clients.",
        ),
        _Setting(
            "max.connections.per.ip",
            ConfigType.INT,
            str(broker.max_connections_per_address),
            "The most connections from one address.",
        ),
        _Setting(
            "connections.max.idle.ms",
            ConfigType.LONG,
            str(broker.connections_max_idle_ms),
            "The time after which a connection is closed on which nothing moves.",
        ),
    ]


def _limit_settings(settings: Settings) -> list[_Setting]:
    return [
        _Setting(
            "socket.request.max.bytes",
            ConfigType.INT,
            str(settings.broker.max_request_bytes),
            "A longer request closes its connection.",
        ),
        _Setting(
            "queued.max.request.bytes",
            ConfigType.LONG,
            str(settings.block.max_inflight_bytes),
            "The bytes of produce requests that are held in memory.",
        ),
        _Setting(
            "fetch.max.bytes",
            ConfigType.INT,
            str(settings.fetch.max_bytes),
            "The most bytes in the answer to one fetch.",
        ),
        _Setting(
            "max.incremental.fetch.session.cache.slots",
            ConfigType.INT,
            str(settings.fetch.sessions),
            "The most fetch sessions.",
        ),
        _Setting(
            "log.retention.check.interval.ms",
            ConfigType.LONG,
            str(settings.janitor.interval_ms),
            "The time between two runs of retention.",
        ),
        _Setting(
            "producer.id.expiration.ms",
            ConfigType.INT,
            str(settings.janitor.producer_expiry_ms),
            "The time for which the sequences of an idle producer are remembered.",
        ),
    ]


def _broker_config(setting: _Setting, default: str) -> DescribedConfig:
    candidates = [Candidate(ConfigSource.DEFAULT, setting.name, default)]
    if setting.value != default:
        own = Candidate(ConfigSource.STATIC_BROKER, setting.name, setting.value)
        candidates.insert(0, own)
    return DescribedConfig(
        name=setting.name,
        type=setting.type,
        documentation=setting.documentation,
        read_only=True,
        candidates=candidates,
    )


def _broker_default(topic_name: str, defaults: Mapping[str, str]) -> DescribedConfig:
    definition = DEFINITIONS[topic_name]
    return DescribedConfig(
        name=_BROKER_NAMES[topic_name],
        type=definition.type,
        documentation=definition.documentation,
        read_only=True,
        candidates=_default_candidates(definition, defaults),
    )
