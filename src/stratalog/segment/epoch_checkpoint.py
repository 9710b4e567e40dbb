"""The leader-epoch checkpoint of a segment: every epoch up to its end, with its first offset.

Text: the version (0), the number of entries, and a line of epoch and first offset for each.
"""

from collections.abc import Sequence
from itertools import pairwise

from stratalog.batch.header import BytesLike
from stratalog.control.segments.model import EpochStart
from stratalog.ids import LeaderEpoch, Offset
from stratalog.segment.errors import EpochCheckpointDamagedError, SegmentRefusedError

VERSION = "0"


def epochs_between(epochs: Sequence[EpochStart], first: int, last: int) -> list[EpochStart]:
    """Return the epochs of the offsets from `first` to `last`, without epochs that have none."""
    found: list[EpochStart] = []
    for epoch, start in epochs:
        if start > last:
            break
        start = Offset(max(start, first))
        if found and found[-1].start_offset == start:
            found.pop()
        found.append(EpochStart(epoch, start))
    return found


def encode_checkpoint(epochs: Sequence[EpochStart]) -> bytes:
    fault = _fault(epochs)
    if fault is not None:
        raise SegmentRefusedError(f"leader-epoch checkpoint: {fault}")
    lines = [VERSION, str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_checkpoint(data: BytesLike) -> list[EpochStart]:
    try:
        lines = bytes(data).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise _damaged("it is not text") from None
    if len(lines) < 2:
        raise _damaged("it has no version and count")
    version, count, *rest = lines
    if version.strip() != VERSION:
        raise _damaged(f"its version is {version[:20]!r}, known is {VERSION}")
    if count.strip() != str(len(rest)):
        raise _damaged(f"it should have {count[:20]!r} entries and has {len(rest)}")
    epochs = [_parse_entry(line) for line in rest]
    fault = _fault(epochs)
    if fault is not None:
        raise _damaged(fault)
    return epochs


def _parse_entry(line: str) -> EpochStart:
    try:
        epoch, start = map(int, line.split())
    except ValueError:
        raise _damaged(f"{line[:50]!r} is not an epoch and an offset") from None
    return EpochStart(LeaderEpoch(epoch), Offset(start))


def _fault(epochs: Sequence[EpochStart]) -> str | None:
    if epochs and min(epochs[0]) < 0:
        return f"epoch {epochs[0].epoch} from offset {epochs[0].start_offset} on"
    for before, after in pairwise(epochs):
        if not (before.epoch < after.epoch and before.start_offset < after.start_offset):
            return (
                f"epoch {after.epoch} from offset {after.start_offset} on comes after"
                f" epoch {before.epoch} from {before.start_offset} on"
            )
    return None


def _damaged(reason: str) -> EpochCheckpointDamagedError:
    return EpochCheckpointDamagedError(f"leader-epoch checkpoint: {reason}")
