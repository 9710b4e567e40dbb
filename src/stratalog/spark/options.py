"""The options of a batch or stream reader, parsed. Pure.

If several options give the start or the end, the first of these counts, as in Spark's Kafka source:
`startingTimestamp`, `startingOffsetsByTimestamp`, `startingOffsets`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.control.scans.model import EARLIEST, LATEST
from stratalog.ids import Offset, PartitionIndex
from stratalog.opening.location import LOCATION_NAMES, ClusterLocation
from stratalog.scan.conditions import parse_conditions
from stratalog.scan.errors import ScanRefusedError
from stratalog.scan.model import AtTime, Position, Positions, RowFilter, ScanColumn
from stratalog.settings import MINUTE_MS
from stratalog.spark.errors import OptionError
from stratalog.spark.option_json import parse_assignment, parse_numbers
from stratalog.spark.option_table import ISOLATION, OptionTexts

_SELECTIONS = ("topic", "subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ON_UNDECODABLE = {"error": False, "skip": True}
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_MAX_TRIGGER_DELAY_MS = 15 * MINUTE_MS
"""The default of Spark's Kafka source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The topics that are read. One of the three is not empty."""

    topics: Sequence[str] = ()
    pattern: str | None = None
    assign: Mapping[str, Sequence[PartitionIndex]] = field(default_factory=dict)

    def has(self, topic: str, partition: int) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or partition in self.assign.get(topic, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How much one batch of a stream takes."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _MAX_TRIGGER_DELAY_MS
    """The longest time for which a stream waits for `min_offsets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    selection: Selection
    starting: Positions
    ending: Positions
    columns: Sequence[ScanColumn] = tuple(ScanColumn)
    """The columns, unless a schema is given."""
    committed: bool = True
    fail_on_data_loss: bool = True
    skips_undecodable: bool = False
    min_partitions: int = 1
    max_records_per_partition: int | None = None
    rows: RowFilter = field(default_factory=RowFilter)
    split_bytes: int | None = None
    lease_ms: int | None = None
    location: ClusterLocation = field(default_factory=ClusterLocation)
    """The cluster, as the command line and `stratalog.read` name it, too."""
    admission: Admission = Admission()


def chosen_columns(given: Mapping[str, str]) -> Sequence[ScanColumn]:
    """Parse the columns for a schema, before Spark says if a batch or a stream will be read."""
    texts = OptionTexts(given)
    _selection(texts)
    return _columns(texts)


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    texts = OptionTexts(given)
    selection = _selection(texts)
    starting = _starting(texts, selection, default=EARLIEST)
    ending = _ending(texts, selection)
    _refuse_position(starting, LATEST, "startingOffsets", "the latest offset is where it ends")
    _refuse_position(ending, EARLIEST, "endingOffsets", "the earliest offset is where it begins")
    return _read_options(texts, selection, starting, ending)


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    texts = OptionTexts(given)
    endings = texts.named(_ENDINGS)
    if endings:
        raise OptionError(
            f"{endings[0]}: a stream has no end; to read the present records and stop, use "
            "trigger(availableNow=True)"
        )
    if texts.text("where") is not None:
        raise OptionError("where: is for batches; filter the rows of a stream with its own where()")
    selection = _selection(texts)
    starting = _starting(texts, selection, default=LATEST)
    return _read_options(texts, selection, starting, Positions(default=LATEST))


def _read_options(
    texts: OptionTexts, selection: Selection, starting: Positions, ending: Positions
) -> ReadOptions:
    return ReadOptions(
        selection=selection,
        starting=starting,
        ending=ending,
        columns=_columns(texts),
        committed=texts.choice(
            ISOLATION, {"read_committed": True, "read_uncommitted": False}, "read_committed"
        ),
        fail_on_data_loss=texts.flag("failOnDataLoss", default=True),
        skips_undecodable=texts.choice("onUndecodable", _ON_UNDECODABLE, "error"),
        min_partitions=texts.count("minPartitions") or 1,
        max_records_per_partition=texts.count("maxRecordsPerPartition"),
        rows=_rows(texts),
        split_bytes=texts.size_bytes("splitBytes"),
        lease_ms=texts.duration_ms("leaseMs"),
        location=ClusterLocation(**{name: texts.unchecked(name) for name in LOCATION_NAMES}),
        admission=_admission(texts),
    )


def _selection(texts: OptionTexts) -> Selection:
    given = texts.named(_SELECTIONS)
    if len(given) != 1:
        said = f"{' and '.join(given)} exclude each other" if given else "no topic is named"
        raise OptionError(f"{said}: give one of the options {', '.join(_SELECTIONS)}")
    text = texts.text(given[0]) or ""
    if given == ["subscribePattern"]:
        return Selection(pattern=_pattern(text))
    if given == ["assign"]:
        return Selection(assign=parse_assignment("assign", text))
    names = [text.strip()] if given == ["topic"] else texts.names("subscribe") or []
    return Selection(topics=tuple(dict.fromkeys(names)))


def _rows(texts: OptionTexts) -> RowFilter:
    text = texts.text("where")
    try:
        return RowFilter() if text is None else parse_conditions(text)
    except ScanRefusedError as error:
        raise OptionError(f"where: {error}") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern: {text!r} is no regular expression: {error}") from None
    return text


def _columns(texts: OptionTexts) -> tuple[ScanColumn, ...]:
    names = texts.names("columns")
    if names is None:
        headers = texts.flag("includeHeaders", default=True)
        return tuple(c for c in ScanColumn if headers or c is not ScanColumn.HEADERS)
    known = {column.lower(): column for column in ScanColumn}
    for name in names:
        if name.lower() not in known:
            raise OptionError(f"columns: a topic has no {name!r}, it has {', '.join(ScanColumn)}")
    return tuple(dict.fromkeys(known[name.lower()] for name in names))


def _admission(texts: OptionTexts) -> Admission:
    most, least = texts.count("maxOffsetsPerTrigger"), texts.count("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}"
        )
    return Admission(
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=texts.duration_ms("maxTriggerDelay") or _MAX_TRIGGER_DELAY_MS,
    )


def _starting(texts: OptionTexts, selection: Selection, default: Offset) -> Positions:
    or_latest = texts.choice(
        "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
    )
    by_time = _by_time(texts, selection, "starting", EARLIEST, or_latest=or_latest)
    return by_time or _by_offset(texts, selection, "startingOffsets", default, EARLIEST)


def _ending(texts: OptionTexts, selection: Selection) -> Positions:
    """Parse the end. A partition without a record that young is read to its end, as in Kafka's
    source."""
    by_time = _by_time(texts, selection, "ending", LATEST, or_latest=True)
    return by_time or _by_offset(texts, selection, "endingOffsets", LATEST, LATEST)


def _by_time(
    texts: OptionTexts, selection: Selection, end: str, others: Offset, *, or_latest: bool
) -> Positions | None:
    moment = texts.count(f"{end}Timestamp", least=0)
    if moment is not None:
        return Positions(default=AtTime(moment, or_latest))
    option = f"{end}OffsetsByTimestamp"
    text = texts.text(option)
    if text is None:
        return None
    moments = parse_numbers(option, text, least=0)
    _refuse_others(option, moments, selection)
    by_partition: dict[tuple[str, int], Position] = {
        key: AtTime(moment, or_latest) for key, moment in moments.items()
    }
    return Positions(default=others, by_partition=by_partition)


def _by_offset(
    texts: OptionTexts, selection: Selection, option: str, default: Offset, others: Offset
) -> Positions:
    """Parse positions. Partitions that the JSON does not name get `others`, and are read whole."""
    text = texts.text(option)
    if text is None:
        return Positions(default=default)
    if text.strip().lower() in _WORDS:
        return Positions(default=_WORDS[text.strip().lower()])
    if not text.lstrip().startswith("{"):
        raise OptionError(f'{option}: must be earliest, latest or JSON, not "{text}"')
    offsets = parse_numbers(option, text, least=EARLIEST)
    _refuse_others(option, offsets, selection)
    by_partition: dict[tuple[str, int], Position] = {
        key: Offset(number) for key, number in offsets.items()
    }
    return Positions(default=others, by_partition=by_partition)


def _refuse_others(
    option: str, partitions: Iterable[tuple[str, int]], selection: Selection
) -> None:
    for topic, partition in partitions:
        if not selection.has(topic, partition):
            raise OptionError(f'{option}: partition {partition} of "{topic}" is not being read')


def _refuse_position(positions: Positions, refused: Offset, option: str, why: str) -> None:
    word = next(word for word, offset in _WORDS.items() if offset == refused)
    if positions.default == refused:
        raise OptionError(f"{option}: must not be {word} in a batch: {why}")
    for (topic, partition), position in positions.by_partition.items():
        if position == refused:
            raise OptionError(
                f'{option}: must not be {refused}, {word}, for partition {partition} of "{topic}" '
                f"in a batch: {why}"
            )
