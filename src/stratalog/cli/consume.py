"""`stratalog consume`: records to stdout."""

import sys
from collections.abc import Callable
from typing import Annotated, cast

import typer
from confluent_kafka import Message

from stratalog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, examples
from stratalog.cli.output import print_bytes, print_json
from stratalog.cli.record_json import Record, record_to_json
from stratalog.cli.record_reader import Edge, FromOffset, FromTime, RecordReader, Start
from stratalog.cli.timestamps import format_time, parse_time
from stratalog.cli.topic import Topic
from stratalog.clock import SYSTEM_CLOCK

EPILOG = examples(
    "stratalog consume greetings --from-beginning",
    'stratalog consume orders --from-time "10m ago" --keys --timestamps',
    "stratalog consume orders --partition 3 --from-offset 1000 --max 10 --json",
    "stratalog consume orders --from-offset -5",
    "stratalog consume orders --follow",
)


JsonRecords = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object per record, with base 64 for bytes that are not UTF-8.",
    ),
]


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record.")
    ] = False,
    from_offset: Annotated[
        int | None,
        typer.Option(help="Start at this offset; negative counts back from the end."),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(help='Start at "10m ago", an ISO date and time, or epoch milliseconds.'),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Read this partition only.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print the key before the value.")] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print name=value,... before the value.")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Print each record's time first.")
    ] = False,
    json: JsonRecords = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic: each value as its exact bytes, then a newline.

    Without --follow it prints the records that exist when it starts, and ends; with --follow it
    waits for new records. Default start: the beginning, with --follow the end. Tabs separate the
    key, the headers and the time from the value.
    """
    start = _start(from_beginning, from_offset, from_time, follow)
    write = _write_json if json else _text_writer(keys, headers, timestamps)
    reading = RecordReader(topic, bootstrap)
    try:
        _print_records(reading, start, partition, most, follow, write)
    except KeyboardInterrupt:
        pass  # Ctrl-C is how a person ends --follow.
    finally:
        reading.close()


def _start(
    from_beginning: bool, from_offset: int | None, from_time: str | None, follow: bool
) -> Start:
    if from_beginning + (from_offset is not None) + (from_time is not None) > 1:
        raise typer.BadParameter("give only one of --from-beginning, --from-offset and --from-time")
    if from_time is not None:
        return FromTime(parse_time(from_time, SYSTEM_CLOCK.now_ms()))
    if from_offset is not None:
        return FromOffset(from_offset)
    return Edge.END if follow and not from_beginning else Edge.BEGINNING


def _print_records(
    reading: RecordReader,
    start: Start,
    partition: int | None,
    most: int | None,
    follow: bool,
    write: Callable[[Message], None],
) -> None:
    left = most
    for batch in reading.batches(reading.spans(start, partition=partition), follow=follow):
        for message in batch[:left]:
            write(message)
        sys.stdout.flush()
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def _write_json(message: Message) -> None:
    record = Record(
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
        partition=message.partition(),
        timestamp=message.timestamp()[1],
    )
    print_json(record_to_json(record, topic=message.topic() or "", offset=message.offset() or 0))


def _text_writer(keys: bool, headers: bool, timestamps: bool) -> Callable[[Message], None]:
    def write(message: Message) -> None:
        columns = [format_time(message.timestamp()[1]).encode()] if timestamps else []
        columns += [message.key() or b""] if keys else []
        columns += [_header_text(message)] if headers else []
        columns.append(message.value() or b"")
        print_bytes(b"\t".join(columns))

    return write


def _header_text(message: Message) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in _headers(message))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a consumed record are pairs with bytes. The client's type is wider, because
    it also covers the forms that producers may give."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])
