"""`stratalog inspect`: the contents of objects, read from their own bytes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.block.keys import BLOCKS_PREFIX, SPLITS_PREFIX
from stratalog.cli.errors import NoSuchFileError
from stratalog.cli.options import Config, Json, Set, examples, settings_from
from stratalog.cli.output import note, print_json, print_table, say
from stratalog.cli.timestamps import format_time
from stratalog.clock import SYSTEM_CLOCK
from stratalog.segment.keys import parse_segment_key
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.block.footer import BlockFooter
    from stratalog.checks.inspect import InspectedBatch, Inspection
    from stratalog.checks.inspect_segment import InspectedIndex, SegmentInspection

EPILOG = examples(
    "stratalog inspect stratalog-data/objects/blocks/2025/01/31/12/<id>",
    "stratalog inspect s3://bucket/prefix/blocks/2025/01/31/12/<id> --records",
    "stratalog inspect copy-of-a-block --json",
    "stratalog inspect s3://bucket/segments/orders-<id>/0/<offset>-<id>.indexes",
)

_SHOWN_BYTES = 100
_SHOWN_ENTRIES = 1000


def inspect(
    places: Annotated[
        list[str],
        typer.Argument(metavar="OBJECT...", help="Paths, or URLs of objects in a store."),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Decode and print every record.")
    ] = False,
    json: Json = False,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Show the footer and the batches of objects, and test the checksum of each batch.

    No database is needed: every object describes itself. Of a segment it shows the log, the
    indexes or the manifest; a log and its indexes need the manifest beside them. The exit code is
    1 if anything in an object is damaged. Options of the store, such as its endpoint, and the
    keys of encrypted segments come from the settings.
    """
    settings = settings_from(config, overrides)
    all_ok = True
    for number, place in enumerate(places):
        if number and not json:
            say("")
        all_ok &= _show(asyncio.run(_inspect(place, settings, records)), records, json)
    if not all_ok:
        raise typer.Exit(1)


def _show(inspection: "Inspection | SegmentInspection", records: bool, json: bool) -> bool:
    """Print an inspection. False if the object is damaged."""
    if json:
        print_json(inspection.as_dict())
    else:
        _print(inspection, records)
    for problem in _problems(inspection):
        note(f"[bold red]damaged:[/] {escape(problem)}")
    return inspection.ok


async def _inspect(
    place: str, settings: Settings, records: bool
) -> "Inspection | SegmentInspection":
    # Imported late: --help should not wait for object stores and codecs.
    from stratalog.checks.inspect import inspect_object
    from stratalog.checks.inspect_segment import inspect_segment_object, is_segment_object
    from stratalog.objects.open import open_store
    from stratalog.opening.keys import load_private_keys

    store_url, key = split_place(place)
    store = open_store(store_url, settings.storage.object_options, clock=SYSTEM_CLOCK)
    try:
        if not is_segment_object(key):
            return await inspect_object(store, key, records=records)
        keys = load_private_keys(settings.remote)
        return await inspect_segment_object(store, key, keys, records=records)
    finally:
        await store.close()


def split_place(place: str) -> tuple[str, str]:
    """Split into the store's URL and the key. A file outside of a store has its folder as one."""
    scheme, found, _ = place.partition("://")
    if not found or scheme == "file":
        return _split_path(Path(place.removeprefix("file:")))
    return _split(place)


def _split_path(path: Path) -> tuple[str, str]:
    if not path.is_file():
        raise NoSuchFileError(f"there is no file {path}")
    store, key = _split(str(path.absolute()))
    return f"file:{store or '/'}", key


def _split(place: str) -> tuple[str, str]:
    for prefix in (BLOCKS_PREFIX, SPLITS_PREFIX):
        store, found, rest = place.rpartition(f"/{prefix}")
        if found:
            return store, prefix + rest
    store, *names = place.rsplit("/", 3)
    if parse_segment_key("/".join(names), "") is not None:
        return store, "/".join(names)
    store, _, name = place.rpartition("/")
    return store, name


def _print(inspection: "Inspection | SegmentInspection", records: bool) -> None:
    from stratalog.checks.inspect import Inspection

    if isinstance(inspection, Inspection):
        _print_object(inspection)
        _print_batches(inspection.batches)
    else:
        _print_segment_object(inspection)
    if records:
        _print_records(inspection.batches)


def _print_segment_object(inspection: "SegmentInspection") -> None:
    from stratalog.checks.inspect_segment import describe_manifest

    say(f"[bold]{escape(inspection.key)}[/], {inspection.size_bytes:,} bytes\n")
    if inspection.manifest is not None:
        described = describe_manifest(inspection.manifest)
        segment = described.pop("segment")
        values = {**described, **(segment if isinstance(segment, Mapping) else {})}
        print_table(["manifest", ""], [[name, _value(value)] for name, value in values.items()])
    for index in inspection.indexes:
        _print_index(index)
    if inspection.batches:
        say("")
        columns = ["at", "bytes", "offsets", "epoch", "records", "codec", "newest", "producer"]
        rows = [_log_row(batch) for batch in inspection.batches]
        print_table([*columns, "sequence", "crc"], rows)


def _print_index(index: "InspectedIndex") -> None:
    say(f"\n[bold]{index.kind}[/], {index.size_bytes:,} bytes, {len(index.entries):,} entries")
    if index.entries:
        shown = index.entries[:_SHOWN_ENTRIES]
        print_table([*index.entries[0]], [[*entry.values()] for entry in shown])
    if len(index.entries) > _SHOWN_ENTRIES:
        say(f"… and {len(index.entries) - _SHOWN_ENTRIES:,} more; --json has them all")


def _value(value: object) -> object:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value(each)}" for name, each in value.items()) or "-"
    return "-" if value is None else value


def _log_row(batch: "InspectedBatch") -> list[object]:
    header = batch.header
    assert header is not None, "batches of a log are found by their headers"
    at, size, _, *rest = _batch_row(batch)
    return [at, size, f"{header.base_offset}-{header.last_offset}", header.leader_epoch, *rest]


def _print_object(inspection: "Inspection") -> None:
    footer = inspection.footer
    say(f"[bold]{escape(inspection.key)}[/], {inspection.size_bytes:,} bytes")
    if footer is None:
        return
    written = f"{footer.block_id}, written {format_time(footer.created_ms)}"
    if footer.stamped:
        say(f"split file {written}, offsets are stamped\n")
    else:
        say(f"block {written} by broker {footer.broker_id}")
        _print_writer(footer)
        say("")
    print_table(
        ["topic", "partition", "batches", "records", "bytes"],
        [
            [
                entry.topic_name,
                entry.partition,
                entry.batch_count,
                sum(batch.record_count for batch in entry.batches),
                sum(batch.byte_size for batch in entry.batches),
            ]
            for entry in footer.partitions
        ],
    )


def _print_writer(footer: "BlockFooter") -> None:
    if footer.writer is None:
        return
    writer = footer.writer
    say(f"writer {writer.tag:010x}, block {writer.sequence}, after {writer.commits} commits")
    for entry in footer.partitions:
        for answer in entry.answers:
            offsets = ", ".join(map(str, answer.offsets))
            form = f"from offset {offsets} on" if answer.is_run else f"at offsets {offsets}"
            say(f"{entry.topic_name}-{entry.partition}: block {answer.sequence} lies {form}")


def _print_batches(batches: Sequence["InspectedBatch"]) -> None:
    say("")
    columns = ["at", "bytes", "partition", "records", "codec", "newest", "producer", "sequence"]
    print_table([*columns, "crc"], [_batch_row(batch) for batch in batches])


def _batch_row(batch: "InspectedBatch") -> list[object]:
    owner, header = batch.partition, batch.header
    name = "?" if owner is None else f"{owner.topic_name}-{owner.partition}"
    if header is None:
        return [batch.byte_offset, batch.byte_size, name, *"?????", "bad"]
    return [
        batch.byte_offset,
        batch.byte_size,
        name,
        header.records_count,
        _codec_name(header.codec_bits),
        format_time(header.max_timestamp),
        f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else "-",
        header.base_sequence if header.base_sequence >= 0 else "-",
        "ok" if batch.crc_ok else "bad",
    ]


def _codec_name(bits: int) -> str:
    from stratalog.batch.header import Codec

    return Codec(bits).name.lower() if bits in Codec._value2member_map_ else f"codec {bits}"


def _print_records(batches: Sequence["InspectedBatch"]) -> None:
    """Records are numbered within their batch: a block does not know their offsets."""
    rows = [
        [
            batch.byte_offset,
            number,
            format_time(record.timestamp),
            _text(record.key),
            _text(record.value),
        ]
        for batch in batches
        for number, record in enumerate(batch.records or ())
    ]
    say("")
    print_table(["at", "record", "time", "key", "value"], rows)


def _text(data: bytes | None) -> str:
    """Bytes as one line that fits into a table. `--json` prints them whole."""
    if data is None:
        return "null"
    try:
        text = repr(data[:_SHOWN_BYTES].decode())[1:-1]
    except UnicodeDecodeError:
        text = repr(data[:_SHOWN_BYTES])[2:-1]
    return text if len(data) <= _SHOWN_BYTES else f"{text}… ({len(data):,} bytes)"


def _problems(inspection: "Inspection | SegmentInspection") -> Iterator[str]:
    from stratalog.checks.inspect import Inspection

    yield from inspection.errors
    if not isinstance(inspection, Inspection):
        yield from (index.error for index in inspection.indexes if index.error is not None)
    for batch in inspection.batches:
        if batch.error is not None:
            yield f"the batch at byte {batch.byte_offset}: {batch.error}"
