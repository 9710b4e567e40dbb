"""The promises about segments as predicates. Pure, like `promises.py`.

The check that the segments of a partition make one chain is in `segment_chain.py`, because a chain
is read page by page.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from stratalog.checks.report import Problem, Promise
from stratalog.control.log.model import PartitionState
from stratalog.control.segments.model import EpochStart, Segment, SegmentState
from stratalog.control.topics.migration_state import check_state
from stratalog.objects.store import ObjectInfo
from stratalog.segment.epoch_checkpoint import epochs_between
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.log_batches import is_dense
from stratalog.segment.manifest import IndexRange, Manifest
from stratalog.segment.model import IndexKind


def name_of(segment: Segment) -> str:
    return f"segment {segment.base_offset} to {segment.last_offset}"


def migration_holds(state: PartitionState) -> list[Problem]:
    """Promise 4: the offsets fit one of the migration states."""
    return [Problem(promise=Promise.BOUNDARIES, text=text) for text in check_state(state)]


def sizes_add_up(state: PartitionState, segment_bytes: int, row_bytes: int) -> list[Problem]:
    """Promise 4: a partition's size is the size of its segments and of the rows that are served.

    Retention by size uses that number.
    """
    if state.size_bytes == segment_bytes + row_bytes:
        return []
    text = (
        f"its size is {state.size_bytes} bytes, but its segments have {segment_bytes} and its "
        f"rows {row_bytes}"
    )
    return [Problem(promise=Promise.BOUNDARIES, text=text)]


def epochs_rise(
    before: PartitionState, epochs: Sequence[EpochStart], after: PartitionState
) -> list[Problem]:
    """Promise 4: epochs and their starts rise, up to the partition's own epoch."""
    problems = [
        f"epoch {right.epoch} from offset {right.start_offset} cannot follow epoch {left.epoch} "
        f"from offset {left.start_offset}"
        for left, right in pairwise(epochs)
        if right.epoch <= left.epoch or right.start_offset < left.start_offset
    ]
    if not epochs or not before.leader_epoch <= epochs[-1].epoch <= after.leader_epoch:
        last = epochs[-1].epoch if epochs else "none"
        problems.append(f"its last epoch is {last}, its leader's is {after.leader_epoch}")
    return [Problem(promise=Promise.BOUNDARIES, text=text) for text in problems]


def epochs_agree(segment: Segment, epochs: Sequence[EpochStart], whose: str) -> list[Problem]:
    """Promise 2: the epochs of the segment's records agree with another list of epochs.

    Kafka cuts the start of its lineages off. Offsets below the start of a list are not compared.
    """
    if not epochs or not segment.leader_epochs:
        both = [*epochs, *segment.leader_epochs]
        missing = whose if segment.leader_epochs else name_of(segment)
        text = f"{name_of(segment)}: {missing} has no epochs, the other has {_listed(both)}"
        return [Problem(promise=Promise.ONE_VALUE, text=text)]
    first = max(segment.base_offset, epochs[0].start_offset)
    theirs = epochs_between(epochs, first, segment.last_offset)
    own = epochs_between(segment.leader_epochs, first, segment.last_offset)
    if own == theirs and own:
        return []
    text = f"{name_of(segment)} has epochs {_listed(own)}, {whose} {_listed(theirs)}"
    return [Problem(promise=Promise.ONE_VALUE, text=text)]


def _listed(epochs: Sequence[EpochStart]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "none"


def segment_is_legal(segment: Segment) -> list[Problem]:
    """Promise 4: a chained segment was finished, and its row makes sense."""
    where = name_of(segment)
    return [
        Problem(promise=Promise.BOUNDARIES, text=f"{where}: {text}")
        for text in _row_breaches(segment)
    ]


def _row_breaches(segment: Segment) -> Iterator[str]:
    if segment.state is not SegmentState.COPY_FINISHED:
        yield f"it is a part of its partition, although it is {segment.state.name}"
    if segment.uploaded is None:
        yield "it is a part of its partition, although its row has no manifest"
    if segment.last_offset < segment.base_offset:
        yield "it ends before it begins"
    if segment.size_bytes <= 0:
        yield f"its log has {segment.size_bytes} bytes"


def manifest_fits_row(segment: Segment, manifest: Manifest) -> list[Problem]:
    """Promise 5: the manifest in the row describes the segment of that row."""
    uploaded = segment.uploaded
    assert uploaded is not None, "a manifest comes from a row that has one"
    problems: list[str] = []
    original_bytes = manifest.chunks.original_bytes
    if original_bytes != segment.size_bytes:
        problems.append(
            f"its manifest speaks of {original_bytes} bytes, its row of {segment.size_bytes}"
        )
    # Kafka's plugin may name an index that is empty.
    transactions = manifest.indexes.get(IndexKind.TRANSACTION, IndexRange(0, 0))
    if uploaded.has_aborted != (transactions.size_bytes > 0):
        problems.append("its manifest and its row do not agree about aborted transactions")
    return [
        Problem(promise=Promise.OBJECTS, text=f"{name_of(segment)}: {text}") for text in problems
    ]


def objects_fit_manifest(
    segment: Segment, manifest: Manifest, objects: Mapping[str, ObjectInfo]
) -> list[Problem]:
    """Promise 5: the segment's three objects are there, as large as its manifest says."""
    problems: list[str] = []
    for suffix, least, most in _expected_sizes(segment, manifest):
        key = segment.key_base + suffix
        info = objects.get(key)
        if info is None:
            problems.append(f"its object {key} is not in the store")
        elif info.size_bytes < least or (most is not None and info.size_bytes > most):
            problems.append(f"its object {key} has {info.size_bytes} bytes, not {least}")
    return [
        Problem(promise=Promise.OBJECTS, text=f"{name_of(segment)}: {text}") for text in problems
    ]


def _expected_sizes(segment: Segment, manifest: Manifest) -> Iterator[tuple[str, int, int | None]]:
    """Yield suffix, least and greatest size of each object. None if there is no greatest size."""
    uploaded = segment.uploaded
    assert uploaded is not None, "a manifest comes from a row that has one"
    log_bytes, indexes_bytes = manifest.chunks.stored_bytes, manifest.indexes_bytes
    manifest_bytes = len(uploaded.manifest.encode())
    # Another writer may have formatted the same manifest differently, and counted differently.
    if is_dense(segment):
        # The size includes the seek table, which is not in the manifest.
        log_bytes = max(log_bytes, uploaded.stored_bytes - indexes_bytes - manifest_bytes)
    may_have_table = manifest.compressed and manifest.encryption is None
    exact_log = is_dense(segment) or not may_have_table
    yield LOG_SUFFIX, log_bytes, log_bytes if exact_log else None
    yield INDEXES_SUFFIX, indexes_bytes, indexes_bytes
    if is_dense(segment):
        yield MANIFEST_SUFFIX, manifest_bytes, manifest_bytes
    else:
        yield MANIFEST_SUFFIX, 1, None
