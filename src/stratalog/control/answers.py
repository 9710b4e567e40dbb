"""The answers of one block's commit as bytes, kept in its object row while doubt may last."""

import struct
import zlib
from collections.abc import Sequence

from stratalog.control.model import CommitAnswer, CommitOutcome
from stratalog.ids import LeaderEpoch, Offset

_FORMAT = 1
_LEAD = struct.Struct(">BI")


def pack_answers(answers: Sequence[CommitAnswer]) -> bytes:
    """A format byte (1), the count (32 bits), then zlib of five columns, big-endian.

    The columns are outcome (8 bits), base offset, append time, log start (64 bits each) and leader
    epoch (32 bits). Columns, because neighbours are alike and compress to almost nothing.
    """
    count = len(answers)
    columns = struct.pack(
        _columns(count),
        *[answer.outcome for answer in answers],
        *[answer.base_offset for answer in answers],
        *[answer.append_time_ms for answer in answers],
        *[answer.log_start for answer in answers],
        *[answer.leader_epoch for answer in answers],
    )
    return _LEAD.pack(_FORMAT, count) + zlib.compress(columns, level=1)


def unpack_answers(packed: bytes) -> list[CommitAnswer]:
    version, count = _LEAD.unpack_from(packed)
    assert version == _FORMAT, f"answers of format {version} come from a newer version"
    values = struct.unpack(_columns(count), zlib.decompress(packed[_LEAD.size :]))
    columns = [values[start : start + count] for start in range(0, 5 * count, count or 1)]
    return [
        CommitAnswer(
            outcome=CommitOutcome(outcome),
            base_offset=Offset(base_offset),
            append_time_ms=append_time_ms,
            log_start=Offset(log_start),
            leader_epoch=LeaderEpoch(leader_epoch),
        )
        for outcome, base_offset, append_time_ms, log_start, leader_epoch in zip(
            *columns, strict=True
        )
    ]


def _columns(count: int) -> str:
    return f">{count}b{count}q{count}q{count}q{count}i"
