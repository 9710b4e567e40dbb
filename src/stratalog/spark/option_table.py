"""The options of a reader, and the parsing of their texts. Pure.

Options have the names of Spark's Kafka source, so that a job that reads from Kafka changes one
word. Spark hands names over in lower case.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from stratalog.spark.errors import OptionError
from stratalog.units import parse_duration_ms, parse_size_bytes

OPTIONS = (
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "onUndecodable",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "data",
    "objects",
    "control",
    "config",
    "columns",
    "where",
    "splitBytes",
    "leaseMs",
)
ISOLATION = "kafka.isolation.level"
_IGNORED = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of the Kafka source that configure its consumer. A scan has no consumer."""
_KAFKA_PREFIX = "kafka."


class OptionTexts:
    """The texts that a user gave, by the names of `OPTIONS`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        _refuse_unknown(given)
        self._texts = {name.lower(): text for name, text in given.items()}

    def text(self, option: str) -> str | None:
        found = self._texts.get(option.lower())
        if found is not None and not found.strip():
            raise OptionError(f"{option}: is empty")
        return found

    def unchecked(self, option: str) -> str | None:
        """Return the text of an option whose value is checked elsewhere."""
        return self._texts.get(option.lower())

    def named(self, options: Iterable[str]) -> list[str]:
        """Return the given ones of these options."""
        return [option for option in options if option.lower() in self._texts]

    def names(self, option: str) -> list[str] | None:
        """Parse a list that is separated by commas."""
        text = self.text(option)
        return [name.strip() for name in text.split(",") if name.strip()] if text else None

    def flag(self, option: str, default: bool) -> bool:
        text = (self.text(option) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f'{option}: must be true or false, not "{text}"')
        return text == "true"

    def count(self, option: str, *, least: int = 1) -> int | None:
        text = self.text(option)
        if text is None:
            return None
        try:
            count = int(text)
        except ValueError:
            raise OptionError(f'{option}: must be a whole number, not "{text}"') from None
        return _at_least(option, count, least)

    def duration_ms(self, option: str) -> int | None:
        """Parse a duration. As in Spark, `min` is a unit, and case does not matter."""
        text = self.text(option)
        if text is None:
            return None
        try:
            plain = text.strip().lower()
            short = f"{plain.removesuffix('min')}m" if plain.endswith("min") else plain
            return _at_least(option, parse_duration_ms(short), 1)
        except ValueError as error:
            raise OptionError(f"{option}: {error}") from None

    def size_bytes(self, option: str) -> int | None:
        text = self.text(option)
        try:
            return _at_least(option, parse_size_bytes(text), 1) if text is not None else None
        except ValueError as error:
            raise OptionError(f"{option}: {error}") from None

    def choice(self, option: str, choices: Mapping[str, bool], default: str) -> bool:
        text = (self.text(option) or default).strip().lower()
        if text not in choices:
            raise OptionError(f'{option}: must be {" or ".join(choices)}, not "{text}"')
        return choices[text]


def _at_least(option: str, number: int, least: int) -> int:
    if number < least:
        raise OptionError(f"{option}: must be at least {least}, not {number}")
    return number


def _refuse_unknown(given: Iterable[str]) -> None:
    known = {option.lower(): option for option in (*OPTIONS, *_IGNORED)}
    for name in given:
        if name.lower() in known or name.lower().startswith(_KAFKA_PREFIX):
            continue
        if name.lower() == "path":
            raise OptionError(
                'load() takes no path: name the topic by .option("topic", ...) and the settings '
                'file by .option("config", ...)'
            )
        near = [known[close] for close in get_close_matches(name.lower(), known, n=3, cutoff=0.6)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(OPTIONS)}"
        raise OptionError(f"{name}: there is no such option; {hint}")
