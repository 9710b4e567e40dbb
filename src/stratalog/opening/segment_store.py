"""The store of the cluster's own segments: the store of its blocks, or one apart from it.

Rows of segments do not say which. A program that took another store for it would make segments that
no other program finds, while the blocks that they were made of are deleted. So the control plane
notes whether segments are kept apart. Which store that is, the marker says: addresses differ from
machine to machine, and buckets are moved.
"""

import asyncio
from collections.abc import AsyncIterator

from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import WrongSegmentStoreError
from stratalog.segment.keys import LOG_SUFFIX

_OR_MOVED = "(or, if all segments were copied to where these say, run `stratalog segments moved`)"
_PAGE = 64
_TRIED = 2 * _PAGE
"""Of the segments that may be looked for: some may have been deleted since a backup was made."""


def are_apart(store: ObjectStore, own: ObjectStore) -> bool:
    """Return whether `own`, the store of segments, is another store than the blocks' one."""
    return own.url != store.url


def segments_role(store: ObjectStore, own: ObjectStore) -> StoreRole:
    """Return the role of `own`, beside the store of the blocks."""
    return StoreRole.SEGMENTS if are_apart(store, own) else StoreRole.BLOCKS


async def check_segments_noted(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> None:
    """Raise if segments lie apart from the blocks and are looked for beside them, or vice versa."""
    check_noted((await control.identity.cluster()).segments_apart, store, own)


def check_noted(noted: bool | None, store: ObjectStore, own: ObjectStore) -> None:
    if noted is None or noted == are_apart(store, own):
        return
    if noted:
        raise WrongSegmentStoreError(
            "the segments of this cluster lie in a store of their own, and these settings look for"
            f" them beside the blocks, in {store.url}: set remote.objects as the brokers have it"
            f" {_OR_MOVED}"
        )
    raise WrongSegmentStoreError(
        f"the segments of this cluster lie, or are just being made, beside its blocks, in"
        f" {store.url}, and remote.objects names {own.url}: leave it out {_OR_MOVED}"
    )


async def check_holds_segments(control: ControlPlane, own: ObjectStore) -> bool:
    """Return whether segments of this cluster are here. Raise if there are some, and none that was
    looked for is here."""
    tried = 0
    async for page in _own_segments(control):
        missing = await _missing(page, own)
        if len(missing) < len(page):
            return True
        tried += len(page)
        if tried >= _TRIED:
            break
    if tried:
        raise WrongSegmentStoreError(
            f"{own.url} has none of the segments of this cluster that were looked for: if it is a"
            " folder, is it mounted? Else set remote.objects as it was when they were made; if they"
            " are lost for good, run `stratalog store claim` with these settings"
        )
    return False


async def note_moved(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> int:
    """Note that segments lie in `own` from now on; return how many there are. Raises if one of them
    is not there."""
    found = 0
    async for page in _own_segments(control):
        for segment in await _missing(page, own):
            raise WrongSegmentStoreError(
                f"{own.url} has no {segment.key_base}{LOG_SUFFIX}: copy all segments there first;"
                " nothing was noted"
            )
        found += len(page)
    await control.identity.note_segments_apart(are_apart(store, own), moved=True)
    return found


async def _missing(segments: list[Segment], own: ObjectStore) -> list[Segment]:
    present = await asyncio.gather(*(_is_there(segment, own) for segment in segments))
    return [one for one, here in zip(segments, present, strict=True) if not here]


async def _is_there(segment: Segment, own: ObjectStore) -> bool:
    try:
        await own.head(segment.key_base + LOG_SUFFIX)
    except ObjectNotFoundError:
        return False
    return True


async def _own_segments(control: ControlPlane) -> AsyncIterator[list[Segment]]:
    """The chained ones that lie in the cluster's own store, by pages that are not empty."""
    last: Segment | None = None
    while True:
        after = None if last is None else last.segment_id
        page = await control.segments.all(after=after, limit=_PAGE)
        own = [segment for segment in page if segment.chained and not segment.store_url]
        if own:
            yield own
        if len(page) < _PAGE:
            return
        last = page[-1]
