"""The answers of one block's commit as bytes, kept in its object row while doubt may last."""

import struct
import zlib
from collections.abc import Sequence
from itertools import chain

from stratalog.control.log.model import CommitAnswer, CommitOutcome

_FORMAT = 1
_LEAD = struct.Struct(">BI")


def pack_answers(answers: Sequence[CommitAnswer]) -> bytes:
    """A format byte (1), the count (32 bits), then zlib of five columns, big-endian.

    The columns are outcome (8 bits), base offset, append time, log start (64 bits each) and leader
    epoch (32 bits). Columns, because neighbours are alike and compress to almost nothing.
    """
    count = len(answers)
    columns = struct.pack(_columns(count), *chain.from_iterable(zip(*answers, strict=True)))
    return _LEAD.pack(_FORMAT, count) + zlib.compress(columns, level=1)


def unpack_answers(packed: bytes) -> list[CommitAnswer]:
    version, count = _LEAD.unpack_from(packed)
    assert version == _FORMAT, f"answers of format {version} come from a newer version"
    values = struct.unpack(_columns(count), zlib.decompress(packed[_LEAD.size :]))
    columns = [values[start : start + count] for start in range(0, 5 * count, count or 1)]
    return [
        CommitAnswer(CommitOutcome(outcome), *rest) for outcome, *rest in zip(*columns, strict=True)
    ]


def _columns(count: int) -> str:
    return f">{count}b{count}q{count}q{count}q{count}i"
