"""The contents of one block or split file, read from its own bytes without the control plane.

The footer describes the contents. Without a readable footer, batches are read one after the other
from the first byte, until one is damaged.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc
from stratalog.batch.header import BatchHeader, parse_header
from stratalog.batch.records import Record, decode_records
from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import (
    TRAILER_BYTES,
    BlockFooter,
    FooterBatch,
    FooterEntry,
    FooterPartition,
    FooterRange,
    decode_footer,
    parse_trailer,
)
from stratalog.block.keys import parse_block_key, parse_split_key
from stratalog.checks.object_batches import parse_whole_batch, read_batches
from stratalog.errors import DamagedError
from stratalog.ids import Offset
from stratalog.objects.store import ObjectStore, Range

_WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedBatch:
    byte_offset: int
    byte_size: int
    partition: FooterPartition | None
    """The partition of the batch, as the footer says."""
    header: BatchHeader | None
    """None if the bytes are not a batch."""
    crc_ok: bool = False
    records: Sequence[Record] | None = None
    """None unless records are requested and readable."""
    error: str | None = None

    def as_dict(self) -> dict[str, object]:
        owner = self.partition
        return {
            "byte_offset": self.byte_offset,
            "byte_size": self.byte_size,
            "topic": owner and owner.topic_name,
            "topic_id": owner and str(owner.topic_id),
            "partition": owner and owner.partition,
            "header": self.header and self.header._asdict(),
            "crc_ok": self.crc_ok,
            "error": self.error,
            "records": None if self.records is None else [*map(_record_as_dict, self.records)],
        }


@dataclass(slots=True, kw_only=True)
class Inspection:
    key: str
    size_bytes: int
    footer: BlockFooter | None = None
    errors: list[str] = field(default_factory=list)
    """Damage of the object as a whole."""
    batches: list[InspectedBatch] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors and all(batch.error is None for batch in self.batches)

    def as_dict(self) -> dict[str, object]:
        return {
            "key": self.key,
            "size_bytes": self.size_bytes,
            "ok": self.ok,
            "errors": self.errors,
            "footer": self.footer and _footer_as_dict(self.footer),
            "batches": [batch.as_dict() for batch in self.batches],
        }


async def inspect_object(store: ObjectStore, key: str, *, records: bool = False) -> Inspection:
    """Read an object's footer and every batch. Damage is reported, never raised.

    Raises `ObjectNotFoundError` if there is no such object.
    """
    inspection = Inspection(key=key, size_bytes=(await store.head(key)).size_bytes)
    try:
        inspection.footer = await _read_footer(store, inspection)
    except DamagedError as error:
        inspection.errors.append(f"footer: {error}")
        batches = _read_in_order(store, inspection, records)
    else:
        batches = _read_by_footer(store, key, inspection.footer, records)
    async for batch in batches:
        inspection.batches.append(batch)
    return inspection


async def _read_footer(store: ObjectStore, inspection: Inspection) -> BlockFooter:
    size_bytes = inspection.size_bytes
    if size_bytes < TRAILER_BYTES:
        raise FooterDamagedError(f"{size_bytes} bytes are too few for a trailer")
    trailer_range = Range(size_bytes - TRAILER_BYTES, size_bytes)
    (trailer,) = await store.get_ranges(inspection.key, [trailer_range])
    start = size_bytes - TRAILER_BYTES - parse_trailer(trailer)[0]
    if start < 0:
        raise FooterDamagedError(f"the footer begins {-start} bytes before the object")
    (data,) = await store.get_ranges(inspection.key, [Range(start, size_bytes)])
    footer = decode_footer(data)
    if footer.data_end > start:
        raise FooterDamagedError(f"batches end at {footer.data_end}, inside the footer at {start}")
    named = parse_block_key(inspection.key) or parse_split_key(inspection.key)
    if named is not None and named != footer.block_id:
        kind = "split file" if footer.stamped else "block"
        inspection.errors.append(f"footer: it is of {kind} {footer.block_id}: a misplaced copy?")
    return footer


async def _read_by_footer(
    store: ObjectStore, key: str, footer: BlockFooter, records: bool
) -> AsyncIterator[InspectedBatch]:
    """Yield each batch that the footer names. A damaged batch does not hide later ones."""
    for window in _windows(footer):
        ranges = [Range(batch.byte_offset, batch.byte_end) for _, batch in window]
        buffers = await store.get_ranges(key, ranges)
        for (partition, batch), buffer in zip(window, buffers, strict=True):
            if isinstance(batch, FooterRange):
                for inspected in _inspect_range(partition, batch, memoryview(buffer), records):
                    yield inspected
            else:
                yield _inspect_named(partition, batch, memoryview(buffer), records)


def _windows(footer: BlockFooter) -> Iterator[list[tuple[FooterPartition, FooterEntry]]]:
    """Yield the footer's batches in portions that fit into memory."""
    window: list[tuple[FooterPartition, FooterEntry]] = []
    window_bytes = 0
    for partition in footer.partitions:
        for batch in partition.batches:
            if window and window_bytes + batch.byte_size > _WINDOW_BYTES:
                yield window
                window, window_bytes = [], 0
            window.append((partition, batch))
            window_bytes += batch.byte_size
    if window:
        yield window


def _inspect_named(
    partition: FooterPartition, batch: FooterBatch, data: memoryview, records: bool
) -> InspectedBatch:
    try:
        header = parse_whole_batch(data)
    except BatchDamagedError as error:
        return _damaged(partition, batch.byte_offset, batch.byte_size, str(error))
    inspected = inspect_batch(batch.byte_offset, partition, header, data, records)
    if inspected.error is None:
        return replace(inspected, error=_batch_fault(batch, header))
    return inspected


def _batch_fault(batch: FooterBatch, header: BatchHeader) -> str | None:
    if header.records_count != batch.record_count:
        return f"{header.records_count} records, the footer says {batch.record_count}"
    if batch.max_timestamp not in (None, header.max_timestamp):
        return f"newest record at {header.max_timestamp}, the footer says {batch.max_timestamp}"
    return None


def _inspect_range(
    partition: FooterPartition, named: FooterRange, data: memoryview, records: bool
) -> Iterator[InspectedBatch]:
    """Yield the batches of a range of a split file. Each must have the next offset."""
    position, offset, batches, counted = 0, int(named.base_offset), 0, 0
    while position < len(data):
        byte_offset = named.byte_offset + position
        try:
            header = parse_header(data, position)
        except BatchDamagedError as error:
            rest = (byte_offset, len(data) - position)
            yield _damaged(partition, *rest, str(error))
            return
        batch = data[position : position + header.size_bytes]
        inspected = inspect_batch(byte_offset, partition, header, batch, records)
        if inspected.error is None and header.base_offset != offset:
            problem = f"it says offset {header.base_offset} where {offset} is next"
            inspected = replace(inspected, error=problem)
        position, offset = position + header.size_bytes, header.last_offset + 1
        batches, counted = batches + 1, counted + header.records_count
        if inspected.error is None and position == len(data):
            inspected = replace(inspected, error=_range_fault(named, offset, batches, counted))
        yield inspected


def _range_fault(named: FooterRange, offset: int, batches: int, records: int) -> str | None:
    found = (Offset(offset - 1), batches, records)
    expected = (named.last_offset, named.batch_count, named.record_count)
    if found == expected:
        return None
    return "its range ends at offset {} after {} batches and {} records,".format(
        *found
    ) + " the footer says {}, {} and {}".format(*expected)


def _damaged(
    partition: FooterPartition, byte_offset: int, byte_size: int, problem: str
) -> InspectedBatch:
    return InspectedBatch(
        byte_offset=byte_offset,
        byte_size=byte_size,
        partition=partition,
        header=None,
        error=problem,
    )


async def _read_in_order(
    store: ObjectStore, inspection: Inspection, records: bool
) -> AsyncIterator[InspectedBatch]:
    """Yield each batch from the first byte on, until none follows."""
    try:
        async for position, header, data in read_batches(
            store, inspection.key, 0, inspection.size_bytes
        ):
            yield inspect_batch(position, None, header, data, records)
    except DamagedError as error:
        inspection.errors.append(f"no batch follows: {error}")


def inspect_batch(
    position: int,
    partition: FooterPartition | None,
    header: BatchHeader,
    data: memoryview,
    records: bool,
) -> InspectedBatch:
    crc_ok = False
    decoded: list[Record] | None = None
    problem: str | None = None
    try:
        check_crc(data, 0, header)
        crc_ok = True
        if records:
            decoded = decode_records(data)
    except BatchDamagedError as error:
        problem = str(error)
    return InspectedBatch(
        byte_offset=position,
        byte_size=header.size_bytes,
        partition=partition,
        header=header,
        crc_ok=crc_ok,
        records=decoded,
        error=problem,
    )


def _footer_as_dict(footer: BlockFooter) -> dict[str, object]:
    return {
        "block_id": str(footer.block_id),
        "broker_id": footer.broker_id,
        "created_ms": footer.created_ms,
        "stamped": footer.stamped,
        "writer": footer.writer
        and {
            "tag": f"{footer.writer.tag:010x}",
            "sequence": footer.writer.sequence,
            "commits": footer.writer.commits,
        },
        "partitions": [
            {
                "topic": entry.topic_name,
                "topic_id": str(entry.topic_id),
                "partition": entry.partition,
                "batches": entry.batch_count,
                "bytes": sum(batch.byte_size for batch in entry.batches),
                "records": sum(batch.record_count for batch in entry.batches),
                "answers": [
                    {"sequence": each.sequence, "run": each.is_run, "offsets": [*each.offsets]}
                    for each in entry.answers
                ],
            }
            for entry in footer.partitions
        ],
    }


def _record_as_dict(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(value: bytes | None) -> str | dict[str, str] | None:
    """Return text as it is, and other bytes as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
