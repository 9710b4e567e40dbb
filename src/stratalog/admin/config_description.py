"""Descriptions of configs: each value that was given, and its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stratalog.settings import Settings
from stratalog.topic_configs import DEFINITIONS, ConfigDefinition, ConfigType

LOG_DIR = "/objects"
"""Stands for the object store where tools expect a path. No disk has it."""


class ResourceType(IntEnum):
    """A thing with configs, numbered as in the requests about them."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


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
    """Every value that was given, the one that holds first."""


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


def _settings(settings: Settings, broker_id: int) -> list[_Setting]:
    broker, block, janitor = settings.broker, settings.block, settings.janitor
    text, number, long = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
    truth = ConfigType.BOOLEAN
    return [
        _Setting("broker.id", number, str(broker_id), "The number of this broker."),
        _Setting("broker.rack", text, broker.rack or "", "The zone of this broker."),
        _Setting("listeners", text, broker.listen, "Where this broker accepts clients."),
        _Setting(
            "advertised.listeners",
            text,
            broker.advertise or broker.listen,
            "Where clients are told to connect.",
        ),
        _Setting("log.dirs", text, LOG_DIR, "The object store: brokers keep no data on disk."),
        _Setting(
            "auto.create.topics.enable",
            truth,
            str(broker.auto_create_topics).lower(),
            "Whether a topic is created when a client first asks for it.",
        ),
        _Setting("delete.topic.enable", truth, "true", "Topics can always be deleted."),
        _Setting(
            "num.partitions",
            number,
            str(broker.default_partitions),
            "Partitions of a topic that was created without a number.",
        ),
        _Setting(
            "default.replication.factor",
            number,
            "1",
            "Always 1: the object store replicates.",
        ),
        _Setting(
            "socket.request.max.bytes",
            number,
            str(broker.max_request_bytes),
            "A longer request closes its connection.",
        ),
        _Setting(
            "queued.max.request.bytes",
            long,
            str(block.max_inflight_bytes),
            "Produce requests held in memory.",
        ),
        _Setting(
            "fetch.max.bytes",
            number,
            str(settings.fetch.max_bytes),
            "The most that one fetch is answered with.",
        ),
        _Setting(
            "log.retention.check.interval.ms",
            long,
            str(janitor.interval_ms),
            "How often retention runs.",
        ),
        _Setting(
            "producer.id.expiration.ms",
            number,
            str(janitor.producer_expiry_ms),
            "How long the sequences of an idle producer are remembered.",
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
