"""Changes of a topic's configs, worked out from a request. Pure: configs in, changes out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from stratalog.errors import CallError, TopicConfigError
from stratalog.topic_configs import ConfigType, check_configs, definition_of

Changes: TypeAlias = dict[str, str | None]
"""None unsets a config."""


class ConfigOperation(IntEnum):
    """Numbered as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AskedChange(NamedTuple):
    name: str
    operation: int
    value: str | None


def replacing(configs: Mapping[str, str], wanted: Sequence[tuple[str, str | None]]) -> Changes:
    """AlterConfigs: a config that is not named goes back to its default."""
    _check_names_once(name for name, _ in wanted)
    _check_values((name, value) for name, value in wanted)
    changes: Changes = dict.fromkeys(configs, None)
    return {**changes, **check_configs(dict(wanted))}


def incremental(
    defaults: Mapping[str, str], configs: Mapping[str, str], asked: Sequence[AskedChange]
) -> Changes:
    """IncrementalAlterConfigs: a config that is not named stays. `defaults` are the broker's."""
    _check_names_once(change.name for change in asked)
    _check_values(
        (change.name, change.value)
        for change in asked
        if change.operation != ConfigOperation.DELETE
    )
    changes = {change.name: _changed(defaults, configs, change) for change in asked}
    check_configs({name: value for name, value in changes.items() if value is not None})
    return changes


def _changed(
    defaults: Mapping[str, str], configs: Mapping[str, str], change: AskedChange
) -> str | None:
    if change.operation not in list(ConfigOperation):
        raise CallError(f"there is no config operation with the number {change.operation}")
    if change.operation == ConfigOperation.DELETE:
        return None
    assert change.value is not None
    if change.operation == ConfigOperation.SET:
        return change.value
    listed = _list_of(defaults, configs, change)
    named = _elements(change.value)
    if change.operation == ConfigOperation.APPEND:
        return ",".join([*listed, *(one for one in named if one not in listed)])
    return ",".join(one for one in listed if one not in named)


def _list_of(
    defaults: Mapping[str, str], configs: Mapping[str, str], change: AskedChange
) -> list[str]:
    definition = definition_of(change.name)
    if definition.type is not ConfigType.LIST:
        verb = ConfigOperation(change.operation).name.lower()
        raise TopicConfigError(f"cannot {verb} to {change.name}: it is not a list")
    default = defaults.get(change.name, definition.default)
    return _elements(configs.get(change.name, default))


def _elements(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _check_names_once(names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise CallError(f"the request names config {name} {times} times")


def _check_values(pairs: Iterable[tuple[str, str | None]]) -> None:
    for name, value in pairs:
        if value is None:
            raise CallError(f"config {name} has no value; to unset it, delete it")
