"""The identity of a cluster."""

from stratalog.control.identity.model import UNNAMED, StoreRole
from stratalog.control.plane import ControlPlane


async def test_the_cluster_keeps_its_name_and_counts_generations(
    plane: ControlPlane, other: ControlPlane
) -> None:
    first = await plane.identity.cluster()
    assert await other.identity.cluster() == first
    assert first.generation == 0
    claimed = await other.identity.next_claim(StoreRole.BLOCKS, UNNAMED, None)
    assert claimed is not None
    assert claimed.generation == 1
    assert await plane.identity.cluster() == await other.identity.cluster()
    assert (await plane.identity.cluster()).cluster_id == first.cluster_id


async def test_all_brokers_get_one_key_for_hints(plane: ControlPlane, other: ControlPlane) -> None:
    key = await plane.identity.hint_key()
    assert len(key) == 32
    assert await other.identity.hint_key() == key
    assert await plane.identity.hint_key() == key


async def test_a_store_keeps_its_id_and_the_newest_claims_are_known(
    plane: ControlPlane, other: ControlPlane
) -> None:
    role = StoreRole.SEGMENTS
    first = await plane.identity.first_claim(role)
    assert (first.generation, first.store_id) == (0, None)
    [_, marked] = first.claims_on(role)
    newest = ""
    for _ in range(20):
        pending = await other.identity.next_claim(role, marked, None)
        assert pending is not None
        assert pending.id_of(role) == first.id_of(role) is not None
        assert marked in pending.claims_on(role), "the marker still has it"
        newest = pending.claims_on(role)[-1]
    claimed = await plane.identity.next_claim(role, newest, None)
    assert claimed is not None
    assert len(claimed.claims_on(role)) == 16
    assert await plane.identity.next_claim(role, marked, None) is None
    assert (await plane.identity.cluster()).generation == 21
