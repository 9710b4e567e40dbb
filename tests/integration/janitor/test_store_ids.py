"""Stores of one cluster that are not the store in use: another prefix, a copy, one set back."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from tests.integration.janitor.crashing import CrashError, Crashing
from tests.integration.small_cluster import SmallCluster

from stratalog.clock import SystemClock
from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore, StoredObject
from stratalog.opening.claim import (
    check_claim,
    check_segments,
    check_store,
    claim_anew,
    claim_segments,
    claim_store,
    renew_claim,
)
from stratalog.opening.errors import StoreSetBackError, WrongStoreError
from stratalog.opening.marker import MARKER_KEY, read_marker

Check = Callable[[ControlPlane, ObjectStore], Awaitable[object]]
CHECKS: list[Check] = [claim_store, renew_claim, claim_anew, check_claim, check_store]


async def marker(cluster: SmallCluster) -> bytes:
    return bytes((await cluster.store.get(MARKER_KEY)).data)


async def change_marker(cluster: SmallCluster, **fields: Any) -> None:
    told = json.loads(await marker(cluster)) | fields
    await cluster.store.put(MARKER_KEY, [json.dumps(told).encode()])


@pytest.mark.parametrize("check", CHECKS)
async def test_another_store_of_the_same_cluster_is_refused(
    cluster: SmallCluster, check: Check
) -> None:
    other = uuid4()
    await change_marker(cluster, store_id=str(other))
    before = await marker(cluster)
    known = (await cluster.control.identity.cluster()).store_id
    with pytest.raises(
        WrongStoreError,
        match=f"id {other} is of no known role.* this cluster's blocks is {known}: check storage"
        r".*stop all brokers, delete its stratalog\.json and run `stratalog store claim`",
    ):
        await check(cluster.control, cluster.store)
    assert await marker(cluster) == before


@pytest.mark.parametrize("check", CHECKS)
async def test_a_copy_from_before_is_refused_and_may_be_taken_by_an_operator(
    cluster: SmallCluster, check: Check
) -> None:
    copied = await marker(cluster)
    await claim_store(cluster.control, cluster.store)
    await cluster.store.put(MARKER_KEY, [copied])
    await check_store(cluster.control, cluster.store)
    for _ in range(17):
        await claim_store(cluster.control, cluster.store)
    await cluster.store.put(MARKER_KEY, [copied])
    with pytest.raises(StoreSetBackError, match="copy from before, or was set back"):
        await check(cluster.control, cluster.store)
    assert await marker(cluster) == copied
    await cluster.store.delete([MARKER_KEY])
    store_id = (await cluster.control.identity.cluster()).store_id
    assert await claim_anew(cluster.control, cluster.store)
    found = await read_marker(cluster.store)
    assert found is not None
    assert found[0].store_id == store_id
    await check(cluster.control, cluster.store)


async def test_the_stores_of_blocks_and_segments_may_not_change_places(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    own = open_store(f"file:{tmp_path / 'segments'}", clock=SystemClock())
    await claim_segments(cluster.control, cluster.store, own)
    await check_segments(cluster.control, cluster.store, own)
    for check in CHECKS:
        with pytest.raises(WrongStoreError, match=r"cluster's segments, and.*cluster's blocks is"):
            await check(cluster.control, own)
    for refuse in (claim_segments, check_segments):
        with pytest.raises(WrongStoreError, match=r"cluster's blocks, and.*check remote\.objects"):
            await refuse(cluster.control, own, cluster.store)
    await own.close()


async def test_a_marker_of_the_first_format_is_upgraded_by_the_next_claim(
    cluster: SmallCluster,
) -> None:
    """Also after a crash between the two steps of the upgrade."""
    cluster_id = (await cluster.control.identity.cluster()).cluster_id
    cluster.damage("UPDATE cluster SET store_id = NULL, store_claims = NULL")
    old = {"cluster_id": str(cluster_id), "generation": 1, "format": 1}
    await cluster.store.put(MARKER_KEY, [json.dumps(old).encode()])
    for check in (check_store, check_claim):
        await check(cluster.control, cluster.store)
    store = cast(ObjectStore, Crashing(cluster.store, "put", after=False))
    with pytest.raises(CrashError):
        await claim_store(cluster.control, store)
    for check in (check_store, check_claim):
        await check(cluster.control, cluster.store)
    claimed = await claim_store(cluster.control, cluster.store)
    found = await read_marker(cluster.store)
    assert found is not None
    assert found[0].store_id == claimed.store_id is not None
    assert found[0].claim == claimed.claims_on(StoreRole.BLOCKS)[-1]


async def test_claims_that_never_reach_the_store_do_not_make_its_marker_unknown(
    cluster: SmallCluster,
) -> None:
    """A store that is full, or may only be read, refuses one claim after the other."""
    for _ in range(300):
        store = cast(ObjectStore, Crashing(cluster.store, "put", after=False))
        with pytest.raises(CrashError):
            await renew_claim(cluster.control, store)
    assert len((await cluster.control.identity.cluster()).claims_on(StoreRole.BLOCKS)) == 256
    await check_claim(cluster.control, cluster.store)
    assert (await renew_claim(cluster.control, cluster.store)).generation == 302


class ReadLongAgo:
    """A store whose marker is claimed many times after this program has read it."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self._looked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.store, name)

    async def get(self, key: str) -> StoredObject:
        found = await self._cluster.store.get(key)
        if not self._looked:
            self._looked = True
            for _ in range(18):
                await claim_store(self._cluster.control, self._cluster.store)
        return found


@pytest.mark.parametrize("check", CHECKS)
async def test_a_reader_that_is_overtaken_by_many_claims_is_not_misled(
    cluster: SmallCluster, check: Check
) -> None:
    await check(cluster.control, cast(ObjectStore, ReadLongAgo(cluster)))


async def test_a_restored_control_plane_takes_over_the_claim_but_no_other_store(
    cluster: SmallCluster,
) -> None:
    cluster.damage("UPDATE cluster SET store_claims = ?", str(UUID(int=5)))
    with pytest.raises(StoreSetBackError):
        await claim_anew(cluster.control, cluster.store)
    assert not await claim_anew(cluster.control, cluster.store, restored=True)
    await claim_store(cluster.control, cluster.store)
    cluster.damage("UPDATE cluster SET store_id = ?", str(uuid4()))
    with pytest.raises(WrongStoreError, match="of no known role"):
        await claim_anew(cluster.control, cluster.store, restored=True)
    cluster.damage("UPDATE cluster SET store_id = NULL, store_claims = NULL")
    found = await read_marker(cluster.store)
    assert found is not None
    assert not await claim_anew(cluster.control, cluster.store, restored=True)
    assert (await cluster.control.identity.cluster()).store_id == found[0].store_id
