"""The configs of topics: Kafka's names, types, defaults, and which values they may have.

A config that is accepted but changes nothing here says so in its documentation. Configs whose
meaning would be silently lost are refused instead. This module imports no room, so that settings
can be checked when they are read. `topic/configs.py` turns the values into typed ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum

from stratalog.errors import TopicConfigError

_INT32_LAST = 2**31 - 1
_INT64_LAST = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000


class ConfigType(IntEnum):
    """Numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefinition:
    name: str
    type: ConfigType
    default: str
    documentation: str
    check: Callable[[str], None]
    """Raises ValueError with a description of the values that are allowed."""
    has_effect: bool = True
    """False if the config is accepted for compatibility and changes nothing here."""


def _whole_number(first: int, last: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("a whole number") from None
        if not first <= number <= last:
            raise ValueError(f"from {first} to {last}")

    return check


def _fraction(value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number from 0 to 1") from None
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")


def _one_of(*choices: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")

    return check


def _delete_only(value: str) -> None:
    if value != "delete":
        raise ValueError("delete: compacted topics are not supported yet")


def _anything(value: str) -> None:
    del value


_IGNORED = "Accepted for compatibility; it changes nothing here."


def _ignored(
    name: str, type_: ConfigType, default: str, check: Callable[[str], None], why: str = ""
) -> ConfigDefinition:
    return ConfigDefinition(
        name=name,
        type=type_,
        default=default,
        check=check,
        documentation=f"{why} {_IGNORED}".lstrip(),
        has_effect=False,
    )


_LONG = ConfigType.LONG
_INT = ConfigType.INT
_ANY_BOOLEAN = _one_of("true", "false")


def _level(name: str, levels: range, default: str, more: str = "") -> ConfigDefinition:
    in_range = _whole_number(levels[0], levels[-1])

    def check(value: str) -> None:
        if value != default:
            in_range(value)

    return ConfigDefinition(
        name=f"compression.{name}.level",
        type=_INT,
        default=default,
        check=check,
        documentation=f"How hard {name} compresses, where it is the `compression.type`. {more}",
    )


_DEFINITIONS = [
    ConfigDefinition(
        name="retention.ms",
        type=_LONG,
        default=str(7 * _DAY_MS),
        check=_whole_number(-1, _INT64_LAST),
        documentation="How long records are kept, by their newest timestamp. -1: for ever.",
    ),
    ConfigDefinition(
        name="retention.bytes",
        type=_LONG,
        default="-1",
        check=_whole_number(-1, _INT64_LAST),
        documentation="How many bytes of each partition are kept. -1: no bound.",
    ),
    ConfigDefinition(
        name="max.message.bytes",
        type=_INT,
        default="1048588",
        check=_whole_number(0, _INT32_LAST),
        documentation="The largest record batch that is taken, compressed, with its header.",
    ),
    ConfigDefinition(
        name="message.timestamp.type",
        type=ConfigType.STRING,
        default="CreateTime",
        check=_one_of("CreateTime", "LogAppendTime"),
        documentation="Whether a record's time is the producer's or the time of its commit.",
    ),
    ConfigDefinition(
        name="message.timestamp.before.max.ms",
        type=_LONG,
        default=str(_INT64_LAST),
        check=_whole_number(0, _INT64_LAST),
        documentation="How far a producer's timestamps may lie behind the broker's clock.",
    ),
    ConfigDefinition(
        name="message.timestamp.after.max.ms",
        type=_LONG,
        default=str(60 * 60 * 1000),
        check=_whole_number(0, _INT64_LAST),
        documentation="How far a producer's timestamps may lie ahead of the broker's clock.",
    ),
    ConfigDefinition(
        name="compression.type",
        type=ConfigType.STRING,
        default="producer",
        check=_one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        documentation="The codec that batches are stored with. Any but `producer` costs the "
        "broker a re-encoding of batches that come with another codec.",
    ),
    _level("gzip", range(1, 10), "-1", "-1: the codec's own default."),
    _level("lz4", range(1, 18), "1", "Unlike Kafka's, the default is the fast one."),
    _level("zstd", range(-131072, 23), "3"),
    ConfigDefinition(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default="delete",
        check=_delete_only,
        documentation="The treatment of old records. Only `delete` is supported.",
        has_effect=False,
    ),
    ConfigDefinition(
        name="segment.bytes",
        type=_INT,
        default=str(2**30),
        check=_whole_number(14, _INT32_LAST),
        documentation="The size of a segment in the remote tier.",
    ),
    ConfigDefinition(
        name="segment.ms",
        type=_LONG,
        default=str(7 * _DAY_MS),
        check=_whole_number(1, _INT64_LAST),
        documentation="The age after which records become a segment although it is not full.",
    ),
    ConfigDefinition(
        name="index.interval.bytes",
        type=_INT,
        default="4096",
        check=_whole_number(0, _INT32_LAST),
        documentation="How many bytes of a segment one entry of its indexes stands for, about.",
    ),
    ConfigDefinition(
        name="local.retention.ms",
        type=_LONG,
        default="-2",
        check=_whole_number(-2, _INT64_LAST),
        documentation="How long records stay out of the remote tier. -2: the cluster's tiering "
        "age. -1: for ever.",
    ),
    ConfigDefinition(
        name="local.retention.bytes",
        type=_LONG,
        default="-2",
        check=_whole_number(-2, _INT64_LAST),
        documentation="How many bytes stay out of the remote tier. -2 or -1: no bound of its own.",
    ),
    ConfigDefinition(
        name="stratalog.accept.undecodable.batches",
        type=ConfigType.BOOLEAN,
        default="false",
        check=_ANY_BOOLEAN,
        documentation="Check only the header and the checksum of produced batches, not their "
        "records. Producers of compressed records cost less, and one bad batch stops every reader "
        "of its partition.",
    ),
    _ignored("remote.log.copy.disable", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored("remote.storage.enable", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored(
        "min.insync.replicas",
        _INT,
        "1",
        _whole_number(1, _INT32_LAST),
        "The object store replicates: a write is acknowledged when it is durable there.",
    ),
    _ignored("unclean.leader.election.enable", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored("delete.retention.ms", _LONG, str(_DAY_MS), _whole_number(0, _INT64_LAST)),
    _ignored("file.delete.delay.ms", _LONG, "60000", _whole_number(0, _INT64_LAST)),
    _ignored("flush.messages", _LONG, str(_INT64_LAST), _whole_number(1, _INT64_LAST)),
    _ignored("flush.ms", _LONG, str(_INT64_LAST), _whole_number(0, _INT64_LAST)),
    _ignored("max.compaction.lag.ms", _LONG, str(_INT64_LAST), _whole_number(1, _INT64_LAST)),
    _ignored("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", _fraction),
    _ignored("min.compaction.lag.ms", _LONG, "0", _whole_number(0, _INT64_LAST)),
    _ignored("message.downconversion.enable", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored("message.format.version", ConfigType.STRING, "3.0-IV1", _anything),
    _ignored("preallocate", ConfigType.BOOLEAN, "false", _ANY_BOOLEAN),
    _ignored("segment.index.bytes", _INT, str(10 * 2**20), _whole_number(4, _INT32_LAST)),
    _ignored("segment.jitter.ms", _LONG, "0", _whole_number(0, _INT64_LAST)),
    _ignored("leader.replication.throttled.replicas", ConfigType.LIST, "", _anything),
    _ignored("follower.replication.throttled.replicas", ConfigType.LIST, "", _anything),
]

DEFINITIONS: Mapping[str, ConfigDefinition] = {one.name: one for one in _DEFINITIONS}
"""Every known config, by name."""


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configs if all names are known and all values allowed.

    Raises `TopicConfigError` with the name of the first config that fails.
    """
    return {name: _checked(name, value) for name, value in configs.items()}


def definition_of(name: str) -> ConfigDefinition:
    definition = DEFINITIONS.get(name)
    if definition is None:
        near = get_close_matches(name, DEFINITIONS, n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise TopicConfigError(f"unknown topic config {name}{hint}")
    return definition


def _checked(name: str, value: str | None) -> str:
    definition = definition_of(name)
    if value is None:
        raise TopicConfigError(f"the topic config {name} has no value")
    try:
        definition.check(value)
    except ValueError as error:
        raise TopicConfigError(f"invalid value {value!r} for {name}: it must be {error}") from None
    return value
