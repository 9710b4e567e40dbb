"""Keys of blocks, `blocks/<yyyy>/<mm>/<dd>/<hh>/<uuid7>`, and of split files, in `splits/`.

The folders repeat the time inside the id, in UTC. Therefore keys sort as ids do, a listing can be
compared with the control plane's rows by merging the two, and a person finds an hour by name.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from stratalog.ids import ObjectId, uuid7_time_ms

BLOCKS_PREFIX = "blocks/"
SPLITS_PREFIX = "splits/"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_MS = 3_600_000


def block_key(object_id: ObjectId) -> str:
    """Return the one key of a block, relative to the store's root."""
    return _key(BLOCKS_PREFIX, object_id)


def split_key(object_id: ObjectId) -> str:
    """Return the one key of a split file, relative to the store's root."""
    return _key(SPLITS_PREFIX, object_id)


def parse_block_key(key: str) -> ObjectId | None:
    """Return the id in a block's key, or None for a key that `block_key` does not make."""
    return _parse(BLOCKS_PREFIX, key)


def parse_split_key(key: str) -> ObjectId | None:
    """Return the id in a split file's key, or None for a key that `split_key` does not make."""
    return _parse(SPLITS_PREFIX, key)


def _key(prefix: str, object_id: ObjectId) -> str:
    return f"{prefix}{_hour_folder(uuid7_time_ms(object_id) // _HOUR_MS)}/{object_id}"


@lru_cache(maxsize=64)
def _hour_folder(hours: int) -> str:
    """Return the folder of an hour since 1970. Formatting a date takes as long as a small seal."""
    return f"{_EPOCH + timedelta(hours=hours):%Y/%m/%d/%H}"


def _parse(prefix: str, key: str) -> ObjectId | None:
    try:
        object_id = ObjectId(UUID(key.rpartition("/")[2]))
        expected = _key(prefix, object_id)
    except (ValueError, OverflowError):
        return None
    return object_id if key == expected and object_id.version == 7 else None
