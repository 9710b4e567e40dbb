"""The check of a request's batches before they enter the log, on a thread if it takes long.

Every record is walked. Compressed batches are decompressed for it, within bounds: so many bytes of
a batch may cost no more than so much memory and time, and few batches are decompressed at once.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from stratalog.batch.build import recompress
from stratalog.batch.entry import EntryBatch
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    DecompressedTooLargeError,
)
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import BatchHeader, Codec, TimestampType, parse_header
from stratalog.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES, read_max_timestamp
from stratalog.batch.stamp import stamp_max_timestamp
from stratalog.batch.validate import validate
from stratalog.errors import StratalogError
from stratalog.topic.configs import TopicConfig
from stratalog.topic.errors import TransactionsUnsupportedError
from stratalog.topic.model import PartitionWrite

RATIO_FREE_BYTES = 4 * 1024 * 1024
"""Records of so many bytes may come from a batch of any size. Java's producer never puts more than
1 MiB into a batch unless it is configured to, so that a ratio alone would refuse its zeros."""

_INLINE_RECORDS = 8192
"""Walking so many records takes as long as waking a thread twice, 0.1 ms."""
_INLINE_BYTES = 2 * 1024 * 1024
"""So does the checksum of so many bytes."""
_INLINE_COMPRESSED_BYTES = 16 * 1024
_INLINE_DECOMPRESSED_BYTES = 64 * 1024
"""The most that one batch may grow to on the loop. One that grows further starts again on a
thread."""

_NO_CODEC = int(Codec.NONE)

_TURNS = 2
"""Each may hold the largest decompressed batch, in whole and in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLimits:
    """The bounds of decompression at entry."""

    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_ratio: int = 1000

    def most_bytes(self, compressed_bytes: int) -> int:
        by_ratio = max(RATIO_FREE_BYTES, self.max_ratio * compressed_bytes)
        return min(self.max_decompressed_bytes, by_ratio)


class Entry(NamedTuple):
    """One partition's part of a request, to be checked."""

    write: PartitionWrite
    config: TopicConfig
    now_ms: int


Checked: TypeAlias = Sequence[EntryBatch] | StratalogError
"""The batches of a partition as the log takes them, or the reason to refuse them all."""

_Walked: TypeAlias = Sequence[int | None] | StratalogError
"""The greatest timestamps of the records of a partition's batches, all of which are good."""


class EntryChecks:
    def __init__(self, limits: EntryLimits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(_TURNS)

    def check(self, entries: Sequence[Entry]) -> list[Checked] | Coroutine[Any, Any, list[Checked]]:
        """Check all partitions of a request. One that fails has no effect on the others.

        Returns a coroutine if a thread has to do it."""
        cut = [_cut(entry) for entry in entries]
        if _is_small(entries, cut):
            try:
                return self._check_all(entries, cut, _INLINE_DECOMPRESSED_BYTES)
            except DecompressedTooLargeError:
                pass
        return self._check_on_thread(entries, cut)

    async def _check_on_thread(
        self, entries: Sequence[Entry], cut: Sequence[Checked]
    ) -> list[Checked]:
        async with self._turns:
            return await asyncio.to_thread(self._check_all, entries, cut, None)

    def _check_all(
        self, entries: Sequence[Entry], cut: Sequence[Checked], give_up_bytes: int | None
    ) -> list[Checked]:
        """All batches are walked before one is changed, so that a walk can begin again."""
        walked = [
            self._walked(entry, batches, give_up_bytes)
            for entry, batches in zip(entries, cut, strict=True)
        ]
        return list(map(_reworked, entries, cut, walked))

    def _walked(self, entry: Entry, batches: Checked, give_up_bytes: int | None) -> _Walked:
        """`give_up_bytes` is a bound to give up at, below the one that refuses the batch."""
        if isinstance(batches, StratalogError):
            return batches
        try:
            return [
                _validated(batch, entry, self._most_bytes(batch, give_up_bytes))
                for batch in batches
            ]
        except DecompressedTooLargeError as error:
            if give_up_bytes is not None:
                raise
            return error
        except StratalogError as error:
            return error

    def _most_bytes(self, batch: EntryBatch, give_up_bytes: int | None) -> int:
        if batch.header.codec_bits == _NO_CODEC:
            return batch.header.size_bytes
        most_bytes = self._limits.most_bytes(len(batch.data))
        return most_bytes if give_up_bytes is None else min(most_bytes, give_up_bytes)


def check_headers(entry: Entry) -> list[EntryBatch]:
    """Check all but the records. It takes little time."""
    batches = _entry_batches(entry)
    for batch in batches:
        _validated(batch, entry, None)
    return batches


def _cut(entry: Entry) -> Checked:
    try:
        return _entry_batches(entry)
    except StratalogError as error:
        return error


def _entry_batches(entry: Entry) -> list[EntryBatch]:
    """Cut a partition's bytes into batches, which are not checked yet."""
    topic, partition, data = entry.write
    if not data:
        raise BatchDamagedError(0, "there is no record batch")
    timestamp_type = entry.config.timestamp_type
    return [
        EntryBatch(
            topic_id=topic.id,
            topic_name=topic.name,
            partition=partition,
            timestamp_type=timestamp_type,
            header=header,
            data=data[position : position + header.size_bytes],
        )
        for position, header in iter_batches(data)
    ]


def _validated(batch: EntryBatch, entry: Entry, most_bytes: int | None) -> int | None:
    """Return the greatest timestamp of the records, None if they are not walked."""
    if batch.header.is_transactional:
        raise TransactionsUnsupportedError("transactional batches are not supported yet")
    config = entry.config
    has_bounds = config.timestamp_type is TimestampType.CREATE_TIME
    return validate(
        batch.data,
        0,
        batch.header,
        max_batch_bytes=config.max_message_bytes,
        # The broker's own timestamps need no bounds.
        earliest_timestamp_ms=entry.now_ms - config.timestamp_before_max_ms if has_bounds else None,
        latest_timestamp_ms=entry.now_ms + config.timestamp_after_max_ms if has_bounds else None,
        deep=most_bytes is not None and not config.accept_undecodable_batches,
        max_decompressed_bytes=most_bytes or 0,
    )


def _is_small(entries: Sequence[Entry], cut: Sequence[Checked]) -> bool:
    """Tell from the headers whether a check takes less time than handing it to a thread."""
    total_bytes = records = compressed_bytes = 0
    for entry, batches in zip(entries, cut, strict=True):
        if isinstance(batches, StratalogError):
            continue
        total_bytes += len(entry.write.data)
        for batch in batches:
            header = batch.header
            if _has_other_codec(header, entry.config):
                return False
            if header.codec_bits != _NO_CODEC:
                compressed_bytes += header.size_bytes
            else:
                records += max(header.records_count, 0)
    return (
        total_bytes <= _INLINE_BYTES
        and records <= _INLINE_RECORDS
        and compressed_bytes <= _INLINE_COMPRESSED_BYTES
    )


def _reworked(entry: Entry, batches: Checked, walked: _Walked) -> Checked:
    if isinstance(walked, StratalogError):
        return walked
    assert not isinstance(batches, StratalogError), "they were walked"
    try:
        return list(map(_reworked_one, batches, repeat(entry.config), walked))
    except StratalogError as error:
        return error


def _reworked_one(batch: EntryBatch, config: TopicConfig, greatest: int | None) -> EntryBatch:
    """Change the batch as the log needs it."""
    data, header = batch.data, batch.header
    if greatest is None and header.max_timestamp < 0 <= header.base_timestamp:
        # Some clients leave it out. A batch that cannot be decoded keeps the value of its header.
        with suppress(BatchDamagedError):
            greatest = read_max_timestamp(data, header)
    has_own_times = config.timestamp_type is TimestampType.CREATE_TIME
    restamps = greatest is not None and greatest != header.max_timestamp and has_own_times
    if restamps:
        assert greatest is not None
        # Retention and offsets by time depend on it, so that Kafka corrects it as well.
        stamp_max_timestamp(data, 0, header, greatest)
    if _has_other_codec(header, config):
        assert config.compression is not None
        data = memoryview(recompress(data, 0, config.compression, config.compression_level))
        if len(data) > config.max_message_bytes:
            raise BatchTooLargeError(0, f"re-encoded for the topic it has {len(data)} bytes")
    elif not restamps:
        return batch
    return batch._replace(data=data, header=parse_header(data))


def _has_other_codec(header: BatchHeader, config: TopicConfig) -> bool:
    return config.compression is not None and header.codec_bits != config.compression
