"""Options in JSON, in the form of Spark's Kafka source. Pure.

`{"orders": {"0": 23, "1": -2}}` gives a number to each partition, `{"orders": [0, 1]}` names some.
"""

import json
from collections.abc import Iterator

from stratalog.ids import PartitionIndex
from stratalog.spark.errors import OptionError

_SHOWN = 20
_INT32_MOST = 2**31 - 1
_INT64_MOST = 2**63 - 1


def parse_numbers(option: str, text: str, *, least: int) -> dict[tuple[str, int], int]:
    """Parse one number for each partition."""
    found: dict[tuple[str, int], int] = {}
    for topic, partitions in _topics(option, text):
        if not isinstance(partitions, dict):
            raise OptionError(f'{option}: "{topic}" must be an object such as {{"0": 23}}')
        for index, number in partitions.items():
            where = f'"{topic}", partition {_shown(index)}'
            found[topic, _partition(option, topic, index)] = _number(option, where, number, least)
    return found


def parse_assignment(option: str, text: str) -> dict[str, list[PartitionIndex]]:
    found: dict[str, list[PartitionIndex]] = {}
    for topic, partitions in _topics(option, text):
        if not isinstance(partitions, list) or not partitions:
            raise OptionError(f'{option}: "{topic}" must be a list of partitions such as [0, 1]')
        indexes = [_partition(option, topic, index) for index in partitions]
        found[topic] = [PartitionIndex(index) for index in sorted(set(indexes))]
    return found


def _topics(option: str, text: str) -> Iterator[tuple[str, object]]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _SHOWN) : error.pos + _SHOWN]
        raise OptionError(
            f"{option}: this is not JSON: {error.msg} at character {error.pos + 1}, near {near!r}"
        ) from None
    if not isinstance(document, dict) or not document:
        raise OptionError(f"{option}: must be a JSON object with a topic's name for each key")
    yield from document.items()


def _partition(option: str, topic: str, index: object) -> int:
    """Check a partition, which is a key of an object or a number in a list."""
    number = int(index) if isinstance(index, str) and index.isdecimal() else index
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _INT32_MOST:
        raise OptionError(f'{option}: "{topic}" has no partition {_shown(index)}')
    return number


def _number(option: str, where: str, number: object, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise OptionError(f"{option}: {where} must be a whole number, not {_shown(number)}")
    if not least <= number <= _INT64_MOST:
        raise OptionError(f"{option}: {where} must be at least {least}, not {number}")
    return number


def _shown(value: object) -> str:
    return json.dumps(value)
