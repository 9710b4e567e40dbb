"""The options of a sink, with the names of Spark's Kafka sink as far as it has them. Pure.

Spark hands names over in lower case.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from stratalog.batch.header import Codec
from stratalog.opening.location import LOCATION_NAMES, ClusterLocation
from stratalog.spark.errors import OptionError
from stratalog.units import parse_duration_ms

SINK_OPTIONS = (
    "topic",
    *LOCATION_NAMES,
    "sinkId",
    "batchId",
    "checkpointId",
    "compression",
    "leaseMs",
)
_IGNORED = ("includeHeaders", "checkpointLocation", "queryName")
"""Options of Spark itself, and one of Kafka's sink that has no effect on writing."""
_KAFKA_PREFIX = "kafka."
_KAFKA_COMPRESSION = "kafka.compression.type"
_KAFKA_REFUSED: Mapping[str, str] = {
    "kafka.partitioner.class": "the partition is the key's, as with Kafka's own partitioner; to "
    "choose it yourself, give a column partition",
    "kafka.partitioner.ignore.keys": "to choose partitions yourself, give a column partition",
    "kafka.transactional.id": "a write is one transaction by itself; give a sinkId to have it done "
    "exactly once",
}
"""Kafka's settings whose effect would be lost silently if they were ignored, as the others are."""
_CODECS = {codec.name.lower(): codec for codec in Codec}
_MAX_ID_CHARACTERS = 249
"""The most characters of a topic's name, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    topic: str | None = None
    location: ClusterLocation = field(default_factory=ClusterLocation)
    """The cluster, as the command line and `stratalog.read` name it, too."""
    sink_id: str | None = None
    batch_id: int = 0
    """The number of a batch write among its sink's writes. Spark numbers a stream's batches."""
    checkpoint: str | None = None
    """Where Spark keeps the stream's checkpoint, if it was given as an option."""
    checkpoint_id: str | None = None
    """The id of the checkpoint, where it cannot be read from here."""
    codec: Codec | None = None
    lease_ms: int | None = None


def batch_sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = _parse(given)
    if _text(given, "batchId") is not None and options.sink_id is None:
        raise OptionError("batchId: says which write of a sink this is: give a sinkId, too")
    if options.checkpoint_id is not None:
        raise OptionError("checkpointId: only a stream has a checkpoint; a write has a batchId")
    return options


def stream_sink_options(given: Mapping[str, str]) -> SinkOptions:
    if _text(given, "batchId") is not None:
        raise OptionError("batchId: Spark numbers the batches of a stream")
    return _parse(given)


def _parse(given: Mapping[str, str]) -> SinkOptions:
    _refuse_unknown(given)
    return SinkOptions(
        topic=_text(given, "topic"),
        location=ClusterLocation(**{name: _unchecked(given, name) for name in LOCATION_NAMES}),
        sink_id=_sink_id(_text(given, "sinkId")),
        batch_id=_batch_id(_text(given, "batchId")),
        checkpoint=_unchecked(given, "checkpointLocation"),
        checkpoint_id=_text(given, "checkpointId"),
        codec=_codec(given),
        lease_ms=_lease_ms(_text(given, "leaseMs")),
    )


def _text(given: Mapping[str, str], option: str) -> str | None:
    found = _unchecked(given, option)
    if found is not None and not found.strip():
        raise OptionError(f"{option}: is empty")
    return found


def _unchecked(given: Mapping[str, str], option: str) -> str | None:
    return next((text for name, text in given.items() if name.lower() == option.lower()), None)


def _sink_id(text: str | None) -> str | None:
    if text is not None and len(text) > _MAX_ID_CHARACTERS:
        raise OptionError(f"sinkId: has {len(text)} characters, at most {_MAX_ID_CHARACTERS}")
    return text


def _batch_id(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdecimal() or int(text) >= 1 << 63:
        raise OptionError(f'batchId: must be a whole number from 0 on, not "{text}"')
    return int(text)


def _codec(given: Mapping[str, str]) -> Codec | None:
    """Parse the codec. Our own option counts before Kafka's."""
    for option in ("compression", _KAFKA_COMPRESSION):
        text = _text(given, option)
        if text is None:
            continue
        if text.lower() not in _CODECS:
            raise OptionError(f'{option}: must be one of {", ".join(_CODECS)}, not "{text}"')
        return _CODECS[text.lower()]
    return None


def _lease_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        lease_ms = parse_duration_ms(text)
    except ValueError as error:
        raise OptionError(f"leaseMs: {error}") from None
    if lease_ms < 1:
        raise OptionError(f"leaseMs: must be at least 1, not {lease_ms}")
    return lease_ms


def _refuse_unknown(given: Iterable[str]) -> None:
    known = {option.lower(): option for option in (*SINK_OPTIONS, *_IGNORED)}
    for name in given:
        if name.lower() in _KAFKA_REFUSED:
            raise OptionError(f"{name}: {_KAFKA_REFUSED[name.lower()]}")
        if name.lower() in known or name.lower().startswith(_KAFKA_PREFIX):
            continue
        if name.lower() == "path":
            raise OptionError('path: name the topic by .option("topic", ...) or a column topic')
        near = [known[close] for close in get_close_matches(name.lower(), known, n=3, cutoff=0.6)]
        hint = " or ".join(near)
        hint = f"did you mean {hint}?" if near else f"there are {', '.join(SINK_OPTIONS)}"
        raise OptionError(f"{name}: a sink has no such option; {hint}")
