"""`stratalog.read`: topics as Arrow batches, for pandas, polars, DuckDB and other readers."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from os import PathLike
from typing import Literal, TypeAlias

import pyarrow as pa

from stratalog.control.scans.model import EARLIEST, LATEST
from stratalog.ids import Offset, PartitionIndex
from stratalog.opening.location import ClusterLocation
from stratalog.scan.conditions import parse_conditions
from stratalog.scan.errors import ScanRefusedError
from stratalog.scan.leased_scan import open_leased_scan
from stratalog.scan.left_out import OnLeftOut, warn_of_left_out
from stratalog.scan.model import AtTime, Position, Positions, RowFilter, ScanColumn, ScanRequest
from stratalog.scan.schema import arrow_schema
from stratalog.settings import MINUTE_MS, Settings

Where: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""A position in a partition: one of its ends, an offset, or the first record at or after a time."""

OnUndecodable: TypeAlias = Literal["error", "skip"] | OnLeftOut
"""The treatment of a batch whose records cannot be decoded although its checksum is right. It is an
error that names the batch, unless "skip" makes the scan go on and log a warning. A function gets a
`LeftOutBatch` for each instead, on the thread that decodes: `left_out.append` of a list does."""

_LEASE_MS = 10 * MINUTE_MS
"""The lease is renewed while the scan is read. It is short, because a dead reader leaves it."""
_EVERYTHING_BYTES = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def read(
    topics: str | Sequence[str] = (),
    *,
    pattern: str | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    start: Where | Mapping[int, Where] = "earliest",
    end: Where | Mapping[int, Where] = "latest",
    committed: bool = True,
    fail_on_data_loss: bool = True,
    on_undecodable: OnUndecodable = "error",
    threads: int | None = None,
    data: str | PathLike[str] | None = None,
    objects: str | None = None,
    control: str | None = None,
    config: str | PathLike[str] | None = None,
    settings: Settings | None = None,
) -> pa.RecordBatchReader:
    """Read a snapshot of topics straight from object storage, without a broker.

        stratalog.read("orders").read_pandas()
        polars.from_arrow(stratalog.read("orders", columns=["key", "value"]))
        stratalog.read("orders", start=datetime(2026, 5, 1, tzinfo=UTC), end={0: 17, 1: 4711})

    Records come in the order of topic, partition and offset, up to the last record at the time of
    the call. Records that are deleted meanwhile are read nevertheless. A time stands for the first
    record of each partition that is not older, or for the partition's end. A mapping gives
    positions by partition; partitions that it leaves out are read whole. `end` itself is not read.
    A topic that is named must have all `partitions`; a pattern's topics may have fewer.

    `where` leaves out records by partition, offset and timestamp, and bytes without a matching
    record are not read: `"offset < 9 AND timestamp >= '2026-06-01T00:00:00Z'"`.

    Columns that `columns` does not name are not decoded. For batches that cannot be, see
    `OnUndecodable`. `threads` is by default the number of processors. `data`, `objects`, `control`
    and `config` are the command line's flags, else $STRATALOG_CONFIG or ./stratalog.toml is read.
    """
    location = ClusterLocation(data=data, objects=objects, control=control, config=config)
    wanted = tuple(ScanColumn) if columns is None else _columns(columns)
    request = replace(
        _request(_names(topics), pattern, partitions, where, start, end),
        columns=wanted,
        committed=committed,
        fail_on_data_loss=fail_on_data_loss,
    )
    batches = open_leased_scan(
        _settings(location, settings), request, _checked(threads), _on_left_out(on_undecodable)
    )
    return pa.RecordBatchReader.from_batches(arrow_schema(wanted), batches)


def _request(
    names: Sequence[str],
    pattern: str | None,
    partitions: Collection[int] | None,
    where: str | None,
    start: Where | Mapping[int, Where],
    end: Where | Mapping[int, Where],
) -> ScanRequest:
    numbers = None if partitions is None else frozenset(partitions)
    assigned = {} if numbers is None else _assigned(names, numbers)
    return ScanRequest(
        topics=() if assigned else names,
        pattern=pattern,
        assign=assigned,
        starting=_positions(start, names, EARLIEST),
        ending=_positions(end, names, LATEST),
        rows=_rows(where, numbers),
        split_bytes=_EVERYTHING_BYTES,
        lease_ms=_LEASE_MS,
        holder="stratalog.read",
    )


def _rows(where: str | None, partitions: frozenset[int] | None) -> RowFilter:
    rows = RowFilter() if where is None else parse_conditions(where)
    if partitions is None:
        return rows
    return replace(
        rows, partitions=partitions if rows.partitions is None else partitions & rows.partitions
    )


def _settings(location: ClusterLocation, settings: Settings | None) -> Settings:
    if settings is None:
        return location.settings()
    if location.given():
        raise ScanRefusedError(
            f"settings and {' and '.join(location.given())} exclude each other: both say where the"
            " cluster is"
        )
    return settings


def _assigned(
    names: Sequence[str], partitions: Collection[int]
) -> Mapping[str, Sequence[PartitionIndex]]:
    """Assign the partitions by name: a row filter would silently find nothing in a missing one."""
    return {name: [PartitionIndex(number) for number in partitions] for name in names}


def _on_left_out(on_undecodable: OnUndecodable) -> OnLeftOut | None:
    if callable(on_undecodable):
        return on_undecodable
    if on_undecodable not in ("error", "skip"):
        raise ScanRefusedError(
            f"on_undecodable is {on_undecodable!r}: give 'error', 'skip' or a function"
        )
    return warn_of_left_out if on_undecodable == "skip" else None


def _names(topics: str | Sequence[str]) -> list[str]:
    return [topics] if isinstance(topics, str) else list(topics)


def _checked(threads: int | None) -> int | None:
    if threads is not None and threads < 1:
        raise ScanRefusedError(
            f"threads is {threads}: give one or more, or leave it out for as many as there are"
            " processors"
        )
    return threads


def _columns(names: Sequence[str]) -> tuple[ScanColumn, ...]:
    wanted = tuple(map(_column, names))
    repeated = [name for name, count in Counter(wanted).items() if count > 1]
    if repeated:
        raise ScanRefusedError(f"columns has {repeated[0].value!r} more than once: name it once")
    return wanted


def _column(name: str) -> ScanColumn:
    try:
        return ScanColumn(name)
    except ValueError:
        known = [column.value for column in ScanColumn]
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f": there are {', '.join(known)}"
        raise ScanRefusedError(f"there is no column {name!r}{hint}") from None


def _positions(
    where: Where | Mapping[int, Where], topics: Sequence[str], default: Offset
) -> Positions:
    if not isinstance(where, Mapping):
        return Positions(default=_position(where))
    if not topics:
        raise ScanRefusedError("positions by partition need the topics by name, not by a pattern")
    return Positions(
        default=default,
        by_partition={
            (topic, partition): _position(one)
            for topic in topics
            for partition, one in where.items()
        },
    )


def _position(where: Where) -> Position:
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise ScanRefusedError(
                f"{where!r} says no time zone: add one, such as tzinfo=datetime.UTC"
            )
        # Records have times in whole milliseconds, so a time between two of them is rounded up.
        return AtTime(-((_EPOCH - where) // _MILLISECOND))
    if where == "earliest":
        return EARLIEST
    if where == "latest":
        return LATEST
    if isinstance(where, bool) or not isinstance(where, int) or where < 0:
        raise ScanRefusedError(
            f"{where!r} is no position: give 'earliest', 'latest', an offset or a datetime"
        )
    return Offset(where)
