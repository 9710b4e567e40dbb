from uuid import UUID

import pytest

from stratalog.block.keys import (
    BLOCKS_PREFIX,
    SPLITS_PREFIX,
    block_key,
    parse_block_key,
    parse_split_key,
    split_key,
)
from stratalog.ids import ObjectId, uuid7

MOMENT_MS = 1_731_715_199_999  # 2024-11-15T23:59:59.999Z
BLOCK = ObjectId(uuid7(MOMENT_MS, lambda size: bytes(size)))


def test_a_key_tells_the_hour_of_its_block_in_utc() -> None:
    assert block_key(BLOCK) == f"blocks/2024/11/15/23/{BLOCK}"
    assert block_key(BLOCK).startswith(BLOCKS_PREFIX)


def test_the_id_comes_back_out_of_the_key() -> None:
    assert parse_block_key(block_key(BLOCK)) == BLOCK


def test_keys_sort_as_their_ids_do() -> None:
    times = [0, 1, MOMENT_MS, MOMENT_MS + 1, MOMENT_MS + 3_600_000, 4_102_444_800_000]
    ids = [ObjectId(uuid7(time, lambda size: b"\xff" * size)) for time in times]
    ids += [ObjectId(uuid7(time, lambda size: b"\0" * size)) for time in times]
    assert [block_key(object_id) for object_id in sorted(ids)] == sorted(map(block_key, ids))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "blocks/",
        "stratalog.json",
        f"blocks/2024/11/15/22/{BLOCK}",
        f"blocks/2024/11/15/23/{str(BLOCK).upper()}",
        f"blocks/2024/11/15/23/{BLOCK.hex}",
        f"other/blocks/2024/11/15/23/{BLOCK}",
        f"blocks/2024/11/15/23/{BLOCK}.tmp",
        f"blocks/1970/01/01/00/{UUID(int=0)}",
        f"blocks/9999/01/01/00/{UUID(int=2**128 - 1)}",
    ],
)
def test_other_keys_are_not_blocks(key: str) -> None:
    assert parse_block_key(key) is None


def test_split_files_lie_beside_the_blocks() -> None:
    assert split_key(BLOCK) == f"splits/2024/11/15/23/{BLOCK}"
    assert split_key(BLOCK).startswith(SPLITS_PREFIX)
    assert parse_split_key(split_key(BLOCK)) == BLOCK
    assert parse_split_key(block_key(BLOCK)) is None
    assert parse_block_key(split_key(BLOCK)) is None
