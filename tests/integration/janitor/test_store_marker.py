"""The marker of a store: claims, generations, and a control plane that went back."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.integration.janitor.crashing import CrashError, Crashing
from tests.integration.small_cluster import SmallCluster

from stratalog.control.identity.model import StoreRole
from stratalog.objects.errors import ObjectChangedError, ObjectNotFoundError
from stratalog.objects.store import ObjectStore, Replace, StoredObject
from stratalog.opening.claim import claim_anew, claim_store, renew_claim
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerContendedError,
    MarkerDamagedError,
    MarkerMissingError,
    WrongStoreError,
)
from stratalog.opening.marker import MARKER_KEY, read_marker


async def generations(cluster: SmallCluster) -> tuple[int, int]:
    found = await read_marker(cluster.store)
    assert found is not None
    return found[0].generation, (await cluster.control.identity.cluster()).generation


async def generations_of_control(cluster: SmallCluster) -> int:
    return (await cluster.control.identity.cluster()).generation


async def test_each_claim_raises_the_generation_in_both_places(cluster: SmallCluster) -> None:
    assert await generations(cluster) == (1, 1)
    claimed = await claim_store(cluster.control, cluster.store)
    assert claimed.generation == 2
    assert await generations(cluster) == (2, 2)
    told = json.loads(bytes((await cluster.store.get(MARKER_KEY)).data))
    assert told == {
        "cluster_id": str(claimed.cluster_id),
        "store_id": str(claimed.store_id),
        "claim_id": claimed.claims_on(StoreRole.BLOCKS)[-1],
        "generation": 2,
        "format": 2,
    }


async def test_brokers_that_start_at_once_all_claim_the_store(cluster: SmallCluster) -> None:
    await cluster.store.delete([MARKER_KEY])
    cluster.damage("UPDATE cluster SET generation = 0")
    claims = await asyncio.gather(*(claim_store(cluster.control, cluster.store) for _ in range(6)))
    assert len({claim.generation for claim in claims}) == 6
    marker, control = await generations(cluster)
    assert marker == max(claim.generation for claim in claims)
    assert marker <= control


async def test_a_store_of_another_cluster_is_not_claimed(cluster: SmallCluster) -> None:
    before = bytes((await cluster.store.get(MARKER_KEY)).data)
    cluster.damage("UPDATE cluster SET cluster_id = ?", str(uuid4()))
    with pytest.raises(WrongStoreError, match="belongs to cluster"):
        await claim_store(cluster.control, cluster.store)
    assert bytes((await cluster.store.get(MARKER_KEY)).data) == before


async def test_a_restored_control_plane_does_not_catch_up_by_trying(
    cluster: SmallCluster,
) -> None:
    await claim_store(cluster.control, cluster.store)
    cluster.damage("UPDATE cluster SET generation = 1")
    for _ in range(3):
        with pytest.raises(ControlPlaneBehindError, match="restored from a backup"):
            await claim_store(cluster.control, cluster.store)
    with pytest.raises(ControlPlaneBehindError):
        await claim_anew(cluster.control, cluster.store)
    await cluster.store.delete([MARKER_KEY])
    assert await claim_anew(cluster.control, cluster.store)
    assert (await claim_store(cluster.control, cluster.store)).generation == 3


async def test_no_producer_id_is_given_twice_after_a_restore(cluster: SmallCluster) -> None:
    await claim_store(cluster.control, cluster.store)
    cluster.damage("UPDATE cluster SET generation = 1")
    restored = await cluster.control.log.allocate_producer_ids(1)
    with pytest.raises(ControlPlaneBehindError):
        await renew_claim(cluster.control, cluster.store)
    noticed = await cluster.control.log.allocate_producer_ids(1)
    assert noticed == restored + 1 + 2**32
    await cluster.store.delete([MARKER_KEY])
    await claim_anew(cluster.control, cluster.store)
    claimed = await cluster.control.log.allocate_producer_ids(1)
    assert claimed == noticed + 1 + 2**32
    await claim_store(cluster.control, cluster.store)
    await claim_anew(cluster.control, cluster.store)
    assert await cluster.control.log.allocate_producer_ids(1) == claimed + 1, "no jump without need"


async def test_a_crash_before_the_marker_is_written_means_nothing(cluster: SmallCluster) -> None:
    store = Crashing(cluster.store, "put", after=False)
    with pytest.raises(CrashError):
        await claim_store(cluster.control, cast(ObjectStore, store))
    assert await generations(cluster) == (1, 2)
    await claim_store(cluster.control, cluster.store)
    assert await generations(cluster) == (3, 3)


async def test_a_damaged_marker_is_not_overwritten(cluster: SmallCluster) -> None:
    await cluster.store.put(MARKER_KEY, [b"{}"])
    with pytest.raises(MarkerDamagedError):
        await claim_store(cluster.control, cluster.store)


async def test_a_lost_marker_stops_starts_and_renewals_until_it_is_claimed_anew(
    cluster: SmallCluster,
) -> None:
    await cluster.store.delete([MARKER_KEY])
    for attempt in (renew_claim, claim_store):
        with pytest.raises(MarkerMissingError, match=r"mounted.*typo.*`stratalog store claim`"):
            await attempt(cluster.control, cluster.store)
    assert await read_marker(cluster.store) is None
    assert await generations_of_control(cluster) == 1
    assert await claim_anew(cluster.control, cluster.store)
    await claim_store(cluster.control, cluster.store)
    await renew_claim(cluster.control, cluster.store)
    assert not await claim_anew(cluster.control, cluster.store)


async def test_a_crash_in_the_first_claim_does_not_keep_brokers_from_starting(
    tmp_path: Path,
) -> None:
    for after in (False, True):
        folder = tmp_path / str(after)
        folder.mkdir()
        fresh = await SmallCluster.open(folder)
        store = cast(ObjectStore, Crashing(fresh.store, "put", after=after))
        with pytest.raises(CrashError):
            await claim_store(fresh.control, store)
        assert await generations_of_control(fresh) == 0, "the marker comes first"
        assert (await claim_store(fresh.control, fresh.store)).generation == 1
        await fresh.close()


class FirstClaimBetween:
    """A store in which another broker makes the first claim after this one has found nothing."""

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self._looked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.store, name)

    async def get(self, key: str) -> StoredObject:
        if not self._looked:
            self._looked = True
            await claim_store(self._cluster.control, self._cluster.store)
            raise ObjectNotFoundError(key)
        return await self._cluster.store.get(key)


async def test_a_broker_that_is_overtaken_by_the_first_claim_starts_too(tmp_path: Path) -> None:
    fresh = await SmallCluster.open(tmp_path)
    store = cast(ObjectStore, FirstClaimBetween(fresh))
    assert (await claim_store(fresh.control, store)).generation == 2
    await fresh.close()


class NeverTheSame:
    """A store whose versions have always changed."""

    def __init__(self, target: ObjectStore) -> None:
        self._target = target
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def put(self, key: str, parts: object, *, mode: object) -> str:
        assert isinstance(mode, Replace)
        self.attempts += 1
        raise ObjectChangedError("changed")


async def test_a_store_that_never_takes_the_marker_is_given_up(cluster: SmallCluster) -> None:
    store = NeverTheSame(cluster.store)
    with pytest.raises(MarkerContendedError, match="conditional puts"):
        await claim_store(cluster.control, cast(ObjectStore, store))
    assert store.attempts == 20
