"""Short ways to name the ranges that the pipeline claims and swaps."""

import os
from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import uuid4

from tests.contract.control.building import change

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import (
    Claim,
    ClaimToken,
    ClaimWish,
    RunId,
    SplitPart,
    SplitToCommit,
    UnitKind,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.ids import ObjectId, Offset, TopicPartition, uuid7

_numbers = count(1)
LONG_MS = 60_000
MAX_ATTEMPTS = 3


def new_run() -> RunId:
    return RunId(uuid4())


def wish(partition: TopicPartition, first: int = 0, end: int = 10) -> ClaimWish:
    return ClaimWish(
        partition=partition,
        kind=UnitKind.SPLIT,
        first_offset=Offset(first),
        end_offset=Offset(end),
    )


async def claim_all(
    plane: ControlPlane, run: RunId, *partitions: TopicPartition, **options: Any
) -> list[Claim]:
    settings: dict[str, Any] = {"duration_ms": LONG_MS, "max_attempts": MAX_ATTEMPTS} | options
    return await plane.pipeline.claim_ranges(run, [wish(each) for each in partitions], **settings)


async def claim(
    plane: ControlPlane, partition: TopicPartition, run: RunId | None = None, **options: Any
) -> ClaimToken:
    [claimed] = await claim_all(plane, run or new_run(), partition, **options)
    return claimed.token


async def expire(database: Database) -> None:
    """Let the time of all claims pass."""
    await change(database, "UPDATE claims SET expires_ms = 1 WHERE token IS NOT NULL")


async def rows_in(plane: ControlPlane, partition: TopicPartition) -> list[Coordinates]:
    return await plane.log.all_coordinates(partition, limit=10_000)


def split(*parts: tuple[ClaimToken, Sequence[Coordinates]], **changes: Any) -> SplitToCommit:
    """A split file in which the rows of each part have become one."""
    object_id = ObjectId(uuid7(next(_numbers), os.urandom))
    made: list[SplitPart] = []
    end = 0
    for token, rows in parts:
        byte_size = sum(row.byte_size for row in rows)
        row = rows[-1]._replace(
            base_offset=rows[0].base_offset,
            object_id=object_id,
            object_key=f"splits/{object_id}",
            byte_offset=end,
            byte_size=byte_size,
            max_timestamp=max(row.max_timestamp for row in rows),
            stamped=True,
            oldest_ms=min(row.oldest_commit_ms for row in rows),
        )
        made.append(SplitPart(token=token, old_rows=rows, new_rows=[row]))
        end += byte_size
    values: dict[str, Any] = {
        "object_id": object_id,
        "key": f"splits/{object_id}",
        "size_bytes": end,
        "parts": made,
    }
    return SplitToCommit(**values | changes)
