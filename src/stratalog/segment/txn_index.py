"""The transaction index of a segment (`.txnindex`): the transactions that were aborted in it.

An entry has 34 bytes: version (int16, 0), producer id, first offset, last offset and last stable
offset (int64 each). An entry is in the segment that holds the abort marker, which may lie far
behind the transaction's first records. So a reader searches later segments until an entry proves
that no more can come.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from stratalog.batch.header import BytesLike
from stratalog.ids import Offset, ProducerId
from stratalog.segment.errors import IndexDamagedError
from stratalog.segment.model import AbortedTransaction

VERSION = 0

_ENTRY = struct.Struct(">hqqqq")


class AbortedSearch(NamedTuple):
    transactions: list[AbortedTransaction]
    complete: bool
    """True if later segments need not be searched."""


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Encode the file. Without entries there is no file."""
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)


def decode_aborted(data: BytesLike) -> list[AbortedTransaction]:
    if len(data) % _ENTRY.size:
        raise _damaged(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
    entries: list[AbortedTransaction] = []
    before = -1
    for number, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(data)):
        if version != VERSION:
            raise _damaged(f"entry {number} has version {version}, known is {VERSION}")
        if not 0 <= first <= last or last <= before:
            raise _damaged(
                f"entry {number} spans {first} to {last} after one that ends at {before}"
            )
        before = last
        entries.append(
            AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))
        )
    return entries


def aborted_between(
    entries: Iterable[AbortedTransaction], first: Offset, end: Offset
) -> AbortedSearch:
    """Find the aborted transactions with records in `[first, end)` in one segment's entries.

    When a marker left the last stable offset at or beyond `end`, every transaction with records
    before `end` was decided by then. Transactions that were aborted later also began later.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= first and entry.first_offset < end:
            found.append(entry)
        if entry.last_stable >= end:
            return AbortedSearch(found, complete=True)
    return AbortedSearch(found, complete=False)


def _damaged(reason: str) -> IndexDamagedError:
    return IndexDamagedError(f"transaction index: {reason}")
