"""The look before a first claim: the store must be empty, or hold objects of this cluster only.

A store that was never claimed and holds objects is usually not the one that is meant: a prefix with
a typo, the place of Kafka's tiered segments, or a store whose marker and control plane were lost. A
broker would write its own objects between those, and start all offsets at 0.
"""

from collections import Counter
from uuid import UUID

from stratalog.control.plane import ControlPlane
from stratalog.ids import writer_tag_of
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import StoreOccupiedError
from stratalog.opening.marker import MARKER_KEY, read_marker
from stratalog.segment.keys import parse_segment_key

_PAGE = 1000
"""Keys looked up in the control plane at once. The look ends with the first page of which some are
foreign: they are examples enough."""
_KINDS = {
    "blocks": "objects of a Stratalog cluster without its marker. If they are this cluster's, its"
    " control plane was lost: remove the new, empty one and run `stratalog control rebuild`",
    "segments": "segments of Kafka's tiered storage. Give this cluster another prefix or bucket;"
    " `stratalog segments import` adopts topics where their segments lie",
    "others": "other objects: check {setting} for a typo, or give this cluster a prefix of its own",
}


async def check_vacant(control: ControlPlane, store: ObjectStore, setting: str) -> None:
    """Raise if a store without a marker holds objects that no writer of this cluster has made."""
    foreign = await _foreign_keys(control, store)
    # Another broker may have made the first claim during the look, and written objects.
    if not foreign or await read_marker(store) is not None:
        return
    kinds = Counter(map(_kind, foreign))
    found = "; ".join(
        f"{kinds[kind]} such as {next(key for key in foreign if _kind(key) == kind)!r} are "
        + _KINDS[kind].format(setting=setting)
        for kind in _KINDS
        if kind in kinds
    )
    raise StoreOccupiedError(
        f"{store.url} has no {MARKER_KEY}, and is not empty: {found}. If this cluster shall surely"
        " keep its objects between these, run `stratalog store claim` with the same settings"
    )


async def _foreign_keys(control: ControlPlane, store: ObjectStore) -> list[str]:
    page: dict[str, UUID | None] = {}
    async for info in store.list(""):
        # Consoles of object stores show a prefix as a folder by an empty object.
        if info.key != MARKER_KEY and info.key and not info.key.endswith("/"):
            page[info.key] = id_in(info.key)
        if len(page) >= _PAGE:
            if foreign := await _without_writer(control, page):
                return foreign
            page.clear()
    return await _without_writer(control, page)


async def _without_writer(control: ControlPlane, page: dict[str, UUID | None]) -> list[str]:
    tags = {key: writer_tag_of(each) for key, each in page.items() if each is not None}
    writers = await control.writers.known(tags.values())
    return [key for key in page if tags.get(key) not in writers]


def id_in(key: str) -> UUID | None:
    """The id in the key of a block, a split file or an object of a segment."""
    segment = _segment_id(key)
    if segment is not None:
        return segment
    try:
        found = UUID(key.rpartition("/")[2])
    except ValueError:
        return None
    return found if found.version == 7 else None


def _segment_id(key: str) -> UUID | None:
    """The id in a segment's key, whatever its prefix."""
    named = parse_segment_key("/".join(key.split("/")[-3:]), "")
    return None if named is None else named.segment_id


def _kind(key: str) -> str:
    segment_id = _segment_id(key)
    if segment_id is not None and segment_id.version != 7:
        return "segments"
    return "others" if id_in(key) is None else "blocks"
