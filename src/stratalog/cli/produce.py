"""`stratalog produce`: write lines as records."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.markup import escape

from stratalog.cli.client import CONNECT_SECONDS, as_our_error, client_config, our_errors
from stratalog.cli.errors import NotStoredError, RecordJsonError
from stratalog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, examples
from stratalog.cli.output import ProgressLine, note, progress_line, say
from stratalog.cli.record_json import Record, record_from_json
from stratalog.cli.topic import Topic, parse_pairs

EPILOG = examples(
    "echo hello | stratalog produce greetings",
    "stratalog produce orders --file orders.txt --key-separator :",
    "stratalog produce orders --json < orders.jsonl",
    "stratalog consume a --json | stratalog produce b --json --codec zstd",
)

_POLL_EVERY = 100


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    ONE = "1"
    ALL = "all"


InputFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="Read from this file instead of stdin.")
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        help="The text between key and value. A line without it has no key.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="A header for every record. Repeatable."
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Read each line as an object with key, value, headers, partition and timestamp, "
        "as consume --json prints it.",
    ),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition", "-p", min=0, help="The partition. Default: the hash of the key decides."
    ),
]
CodecOption = Annotated[Codec, typer.Option(help="The compression of batches.")]
AcksOption = Annotated[
    Acks,
    typer.Option(
        help="With all, a retry never repeats or reorders records; 0 and 1 give no such guarantee."
    ),
]


def produce(
    topic: Topic,
    file: InputFile = None,
    key_separator: KeySeparator = None,
    header: Headers = None,
    json: JsonLines = False,
    partition: Partition = None,
    codec: CodecOption = Codec.NONE,
    acks: AcksOption = Acks.ALL,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write each line of the input to a topic as one record.

    When the command ends without an error, every record is stored.
    """
    common = [(name, value.encode()) for name, value in parse_pairs(header, "--header")]
    read = record_from_json if json else partial(_record_of_line, separator=key_separator)
    sending = Sending(topic, bootstrap, acks, codec)
    with _open(file) as (stream, size_bytes), progress_line("producing") as progress:
        try:
            for number, line in enumerate(stream, start=1):
                record = read(line.removesuffix(b"\n"), number=number)
                if common:
                    record = replace(record, headers=[*record.headers, *common])
                if partition is not None:
                    record = replace(record, partition=partition)
                sending.send(record)
                sending.show(progress, len(line), size_bytes)
        except RecordJsonError:
            sending.finish()  # So that exactly the lines before the bad one are stored.
            raise
        sending.finish()
    say(escape(sending.summary()))


def _record_of_line(line: bytes, *, number: int, separator: str | None) -> Record:  # noqa: ARG001
    if separator is None:
        return Record(value=line)
    key, found, value = line.partition(separator.encode())
    return Record(key=key, value=value) if found else Record(value=line)


@contextmanager
def _open(file: Path | None) -> Iterator[tuple[BinaryIO, int | None]]:
    if file is not None:
        with file.open("rb") as stream:
            yield stream, file.stat().st_size
        return
    if sys.stdin.isatty():
        note("One record per line; Ctrl-D ends.")
    yield sys.stdin.buffer, None


class Sending:
    """Sends the records of one command, and counts the acknowledged ones."""

    def __init__(self, topic: str, bootstrap: str, acks: Acks, codec: Codec) -> None:
        self._topic = topic
        self._bootstrap = bootstrap
        self._producer = Producer(
            client_config(
                bootstrap,
                **{
                    "acks": acks.value,
                    "enable.idempotence": acks is Acks.ALL,
                    "compression.type": codec.value,
                    # Java's hash, so that keys land where other producers put them.
                    "partitioner": "murmur2_random",
                },
            )
        )
        with our_errors(bootstrap):
            self._producer.list_topics(timeout=CONNECT_SECONDS)
        self._read_bytes = 0
        self._sent = 0
        self._stored = 0
        self._offsets: dict[int, tuple[int, int]] = {}
        self._failure: KafkaError | None = None

    def send(self, record: Record) -> None:
        given = _given(partition=record.partition, timestamp=record.timestamp)
        while not self._enqueued(record, given):
            self._producer.poll(0.1)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def _enqueued(self, record: Record, given: dict[str, Any]) -> bool:
        """Return False while the client's queue is full."""
        try:
            self._producer.produce(
                self._topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=self._delivered,
                **given,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise as_our_error(error.args[0], self._bootstrap) from error
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        self._stored += 1
        partition, offset = message.partition() or 0, message.offset() or 0
        if offset >= 0:  # With acks=0 the broker does not report offsets.
            first, last = self._offsets.get(partition, (offset, offset))
            self._offsets[partition] = min(first, offset), max(last, offset)

    def show(self, progress: ProgressLine, line_bytes: int, size_bytes: int | None) -> None:
        self._read_bytes += line_bytes
        if self._sent % _POLL_EVERY == 0:
            progress.update(f"{self._stored:,} records stored", self._read_bytes, size_bytes)

    def finish(self) -> None:
        """Wait for every acknowledgement; librdkafka gives up on its own after five minutes."""
        self._producer.flush()
        if self._failure is not None:
            reason = as_our_error(self._failure, self._bootstrap)
            lost = self._sent - self._stored
            raise NotStoredError(f"{lost} of {self._sent} records were not stored: {reason}")

    def summary(self) -> str:
        records = "1 record" if self._sent == 1 else f"{self._sent:,} records"
        written = [
            f"partition {partition} at {first}" + (f"..{last}" if last > first else "")
            for partition, (first, last) in sorted(self._offsets.items())
        ]
        return f"{records} to {self._topic}" + (f": {', '.join(written)}" if written else "")


def _given(**values: int | None) -> dict[str, Any]:
    """Drop the missing values: the client refuses None as a partition or a timestamp."""
    return {name: value for name, value in values.items() if value is not None}
