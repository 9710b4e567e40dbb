"""The first claim of a place in which there is something already."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.integration.segment_cluster import SegmentCluster
from tests.integration.small_cluster import SmallCluster

from stratalog.block.keys import block_key
from stratalog.clock import SystemClock
from stratalog.ids import ObjectId, WriterTag, tagged_uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectInfo, ObjectStore
from stratalog.opening.claim import check_claim, claim_anew, claim_segments, claim_store
from stratalog.opening.errors import StoreOccupiedError
from stratalog.opening.marker import MARKER_KEY, read_marker

GOLDEN = Path(__file__).parents[2] / "golden" / "aiven_compress-false_encrypt-false" / "pfx"


@pytest.fixture(params=["memory:", "file"])
async def fresh(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SmallCluster]:
    """A cluster that has claimed no store yet."""
    objects = f"file:{tmp_path / 'objects'}" if request.param == "file" else request.param
    cluster = await SmallCluster.open(tmp_path, objects=objects)
    yield cluster
    await cluster.close()


def kafkas_keys(prefix: str) -> list[str]:
    """The keys of a segment that Kafka's plugin has made."""
    return [f"{prefix}{f.relative_to(GOLDEN)}" for f in GOLDEN.rglob("*") if f.is_file()]


async def test_the_place_of_kafkas_segments_is_refused_until_an_operator_claims_it(
    fresh: SmallCluster,
) -> None:
    keys = kafkas_keys("prod/tiered/")
    for key in keys:
        await fresh.store.put(key, [b"records"])
    for _ in range(2):
        with pytest.raises(
            StoreOccupiedError,
            match=r"not empty: 3 such as 'prod/tiered/.*' are segments of Kafka's tiered storage"
            r".*`stratalog segments import`.*`stratalog store claim`",
        ):
            await claim_store(fresh.control, fresh.store)
    assert await read_marker(fresh.store) is None
    assert (await fresh.control.identity.cluster()).generation == 0
    assert await claim_anew(fresh.control, fresh.store)
    await claim_store(fresh.control, fresh.store)
    assert [info.key async for info in fresh.store.list("prod/")] == sorted(keys)


async def test_blocks_without_a_marker_are_taken_for_those_of_a_lost_control_plane(
    fresh: SmallCluster,
) -> None:
    key = block_key(ObjectId(tagged_uuid7(SystemClock().now_ms(), WriterTag(0x0DD))))
    await fresh.store.put(key, [b"records"])
    await fresh.store.put("photos/cat.jpg", [b"a cat"])
    with pytest.raises(StoreOccupiedError) as refused:
        await claim_store(fresh.control, fresh.store)
    assert f"1 such as {key!r} are objects of a Stratalog cluster" in str(refused.value)
    assert "`stratalog control rebuild`" in str(refused.value)
    assert "1 such as 'photos/cat.jpg' are other objects: check storage.obj" in str(refused.value)


async def test_a_thousand_objects_before_a_foreign_one_do_not_hide_it(fresh: SmallCluster) -> None:
    sealed = await fresh.upload(await fresh.topic(), {0: [1]})
    first, rest = sealed.commit.key.rsplit("/", 1)
    for number in range(1, 1001):
        # The tag of the announced writer stands behind the first 24 bits of the last groups.
        await fresh.store.put(f"{first}/{rest[:10]}{number:03x}{rest[13:]}", [b"records"])
    await fresh.store.put("splits/README", [b"foreign"])
    with pytest.raises(StoreOccupiedError, match=r"not empty: 1 such as 'splits/README'"):
        await claim_store(fresh.control, fresh.store)


async def test_objects_of_an_announced_writer_may_be_there_before_the_first_broker(
    fresh: SmallCluster,
) -> None:
    await fresh.upload(await fresh.topic(), {0: [1]})
    assert (await claim_store(fresh.control, fresh.store)).generation == 1


async def test_a_store_of_segments_is_looked_at_too(fresh: SmallCluster, tmp_path: Path) -> None:
    own = open_store(f"file:{tmp_path / 'segments'}", clock=SystemClock())
    await claim_store(fresh.control, fresh.store)
    [key, *_] = kafkas_keys("")
    await own.put(key, [b"records"])
    with pytest.raises(StoreOccupiedError, match="Give this cluster another prefix or bucket"):
        await claim_segments(fresh.control, fresh.store, own)
    assert await read_marker(own) is None
    await own.delete([key])
    await claim_segments(fresh.control, fresh.store, own)
    await own.close()


async def test_segments_that_were_moved_may_lie_beside_others(
    fresh: SmallCluster, tmp_path: Path
) -> None:
    await claim_store(fresh.control, fresh.store)
    await SegmentCluster.make(fresh, segments=1)
    own = open_store(f"file:{tmp_path / 'segments'}", clock=SystemClock())
    for key in [*kafkas_keys("kafka/"), "others"]:
        await own.put(key, [b"records"])
    async for info in fresh.store.list("segments/"):
        await own.put(info.key, [(await fresh.store.get(info.key)).data])
    await fresh.control.identity.note_segments_apart(True, moved=True)
    await claim_segments(fresh.control, fresh.store, own)
    assert await read_marker(own) is not None
    await own.close()


class FirstClaimBetween:
    """A store that another broker claims and fills just before this one lists it."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.store, name)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await claim_store(self._cluster.control, self._cluster.store)
        await self._cluster.store.put(f"lost+found/{uuid4()}", [b"anything"])
        async for info in self._cluster.store.list(prefix):
            yield info


async def test_a_broker_that_is_overtaken_by_a_first_claim_starts_too(
    fresh: SmallCluster,
) -> None:
    store = cast(ObjectStore, FirstClaimBetween(fresh))
    await claim_store(fresh.control, store)
    await check_claim(fresh.control, fresh.store)
    assert MARKER_KEY in [info.key async for info in fresh.store.list("")]
