"""Configs as clients are shown them: value, where it comes from, and what else there was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stratalog.kafka.schema_writer import Values
from stratalog.settings import Settings
from stratalog.topic.configs import DEFINITIONS, ConfigDefinition, ConfigType


class ConfigSource(IntEnum):
    """Numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    name: str
    type: ConfigType
    documentation: str
    read_only: bool
    candidates: Sequence[tuple[ConfigSource, str]]
    """Every value that was given, the one that holds first."""

    def values(self, *, synonyms: bool, documentation: bool) -> Values:
        source, value = self.candidates[0]
        return {
            "name": self.name,
            "value": value,
            "read_only": self.read_only,
            "config_source": source,
            "is_sensitive": False,
            "synonyms": [
                {"name": self.name, "value": other, "source": origin}
                for origin, other in (self.candidates if synonyms else ())
            ],
            "config_type": self.type,
            "documentation": self.documentation if documentation else None,
        }


def describe_topic(
    defaults: Mapping[str, str], configs: Mapping[str, str]
) -> list[DescribedConfig]:
    """All configs of a topic, given the broker's defaults and what was set on the topic."""
    return [_topic_config(definition, defaults, configs) for definition in DEFINITIONS.values()]


def _topic_config(
    definition: ConfigDefinition, defaults: Mapping[str, str], configs: Mapping[str, str]
) -> DescribedConfig:
    given = [(ConfigSource.TOPIC, configs), (ConfigSource.STATIC_BROKER, defaults)]
    candidates = [
        (source, where[definition.name]) for source, where in given if definition.name in where
    ]
    return DescribedConfig(
        name=definition.name,
        type=definition.type,
        documentation=definition.documentation,
        read_only=False,
        candidates=[*candidates, (ConfigSource.DEFAULT, definition.default)],
    )


def describe_broker(settings: Settings, broker_id: int) -> list[DescribedConfig]:
    """The settings of a broker under the names that Kafka's tools look for."""
    broker, block = settings.broker, settings.block
    created = "true" if broker.auto_create_topics else "false"
    given: list[tuple[str, ConfigType, str, str]] = [
        ("broker.id", ConfigType.INT, str(broker_id), "The number of this broker."),
        ("broker.rack", ConfigType.STRING, broker.rack or "", "The zone of this broker."),
        (
            "auto.create.topics.enable",
            ConfigType.BOOLEAN,
            created,
            "Whether a topic is created when a client first asks for it.",
        ),
        (
            "num.partitions",
            ConfigType.INT,
            str(broker.default_partitions),
            "Partitions of a topic that was created without a number.",
        ),
        (
            "default.replication.factor",
            ConfigType.INT,
            "1",
            "Always 1: the object store replicates.",
        ),
        (
            "socket.request.max.bytes",
            ConfigType.INT,
            str(broker.max_request_bytes),
            "A longer request closes its connection.",
        ),
        (
            "queued.max.request.bytes",
            ConfigType.LONG,
            str(block.max_inflight_bytes),
            "Produce requests held in memory.",
        ),
    ]
    return [_broker_config(*one) for one in (*given, *_topic_defaults(settings))]


def _broker_config(name: str, type_: ConfigType, value: str, documentation: str) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        type=type_,
        documentation=documentation,
        read_only=True,
        candidates=[(ConfigSource.STATIC_BROKER, value)],
    )


_BROKER_NAMES = {
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "compression.type": "compression.type",
    "cleanup.policy": "log.cleanup.policy",
    "segment.bytes": "log.segment.bytes",
    "min.insync.replicas": "min.insync.replicas",
}
"""What Kafka calls the broker's default of a topic config."""


def _topic_defaults(settings: Settings) -> list[tuple[str, ConfigType, str, str]]:
    definitions = [(name, DEFINITIONS[topic_name]) for topic_name, name in _BROKER_NAMES.items()]
    return [
        (
            name,
            definition.type,
            settings.topic.get(definition.name, definition.default),
            definition.documentation,
        )
        for name, definition in definitions
    ]
