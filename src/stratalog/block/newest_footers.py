"""The newest footers and the witnesses in the store, as evidence of a control plane that went back.

A broker that runs remembers its commits. One that starts asks the store: the newest block of each
writer tells how many commits its writer had made. A writer whose row has fewer of them, or that the
control plane does not know, although none of its rows names the block, means that the control plane
was restored, or failed over, to an earlier state.

The search is bounded: it lists the newest hour with blocks and the hour before, and reads the
footers of the newest writers in them. Later commits of a writer are in its
witness (`block/witness.py`).
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import (
    TRAILER_BYTES,
    BlockFooter,
    FooterWriter,
    decode_footer,
    parse_trailer,
)
from stratalog.block.keys import BLOCKS_PREFIX, parse_block_key
from stratalog.block.witness import Witness, read_witnesses
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, WriterTag, uuid7_time_ms, writer_tag_of
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, ObjectInfo, ObjectStore, Range
from stratalog.opening.errors import ControlPlaneBehindError

_HOURS = 48
_DAYS = 60
"""Hours, and then days, that are looked at for the newest block. Each takes a request, and the
first that has a block ends the search."""
_MOST_FOOTERS = 20
_TAIL_BYTES = 64 * 1024


async def check_not_behind(control: ControlPlane, store: ObjectStore, now_ms: int) -> None:
    """Raise, and halt the cluster, if the store holds blocks of commits that were forgotten."""
    cluster = await control.identity.cluster()
    since_ms = cluster.accepted_ms or 0
    newest = await _newest_by_writer(store, now_ms, since_ms)
    # All is read before the rows, so that a broker that commits meanwhile is no evidence.
    footers = [await _footer(store, info) for info in newest]
    writers = {each.block_id: each.writer for each in footers if each is not None and each.writer}
    witnesses = await read_witnesses(store, now_ms, since_ms)
    reason = await _contradiction(control, writers) or await _contradicted(control, witnesses)
    if reason is not None:
        text = f"the control plane is older than the store: {reason}."
        await control.identity.halt(text)
        raise ControlPlaneBehindError(
            f"{text} Restore a newer backup; or, to go on without those records, stop all brokers"
            " and run `stratalog control accept`"
        )


async def _contradiction(
    control: ControlPlane, writers: dict[ObjectId, FooterWriter]
) -> str | None:
    known = await control.writers.known(each.tag for each in writers.values())
    rows = await control.objects.sizes([*writers])
    for block_id, writer in writers.items():
        row = known.get(writer.tag)
        # A writer that ended long ago is forgotten, and its blocks still have rows.
        if row is None and block_id not in rows:
            return f"it does not know writer {writer.tag:010x}, which wrote block {block_id}"
        if row is not None and writer.commits > row.commits:
            return (
                f"it knows {row.commits} commits of writer {row.name}, which had made"
                f" {writer.commits} when it wrote block {block_id}"
            )
    return None


async def _contradicted(control: ControlPlane, witnesses: Sequence[Witness]) -> str | None:
    known = await control.writers.known(each.tag for each in witnesses)
    for witness in witnesses:
        row = known.get(witness.tag)
        told = f"{witness.commits} commits, as its witness tells"
        if row is None:
            return f"it does not know writer {witness.tag:010x}, which had made {told}"
        if witness.commits > row.commits:
            return f"it knows {row.commits} commits of writer {row.name}, which had made {told}"
    return None


async def _newest_by_writer(store: ObjectStore, now_ms: int, since_ms: int) -> Sequence[ObjectInfo]:
    """Return the newest block of each of the newest writers."""
    newest: dict[WriterTag, ObjectInfo] = {}
    for prefix in _prefixes(now_ms):
        found: dict[WriterTag, ObjectInfo] = {}
        async for info in store.list(prefix):
            block_id = parse_block_key(info.key)
            if block_id is not None and uuid7_time_ms(block_id) > since_ms:
                found[writer_tag_of(block_id)] = info
        was_found = bool(newest)
        newest = found | newest
        if was_found:
            break
    return sorted(newest.values(), key=lambda info: info.key)[-_MOST_FOOTERS:]


def _prefixes(now_ms: int) -> Iterator[str]:
    """Yield the prefixes of the newest hours, the newest first, and then of the days before."""
    # An hour ahead, for writers whose clock is.
    newest = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(hours=1)
    for hours in range(_HOURS):
        yield f"{BLOCKS_PREFIX}{newest - timedelta(hours=hours):%Y/%m/%d/%H}/"
    for days in range(_HOURS // 24, _DAYS):
        yield f"{BLOCKS_PREFIX}{newest - timedelta(days=days):%Y/%m/%d}/"


async def _footer(store: ObjectStore, info: ObjectInfo) -> BlockFooter | None:
    """Read a footer. None if it is damaged, or if its block was deleted meanwhile."""
    try:
        tail = await _tail(store, info, _TAIL_BYTES)
        footer_bytes = parse_trailer(tail[-TRAILER_BYTES:])[0] + TRAILER_BYTES
        if footer_bytes > len(tail):
            tail = await _tail(store, info, footer_bytes)
        return decode_footer(tail[-footer_bytes:])
    except (FooterDamagedError, ObjectNotFoundError):
        return None


async def _tail(store: ObjectStore, info: ObjectInfo, size_bytes: int) -> memoryview:
    start = max(0, info.size_bytes - size_bytes)
    data: Buffer
    (data,) = await store.get_ranges(info.key, [Range(start, info.size_bytes)])
    return memoryview(data)
