"""The identity of a cluster."""

from stratalog.control.plane import ControlPlane


async def test_the_cluster_keeps_its_name_and_counts_generations(
    plane: ControlPlane, other: ControlPlane
) -> None:
    first = await plane.identity.cluster()
    assert await other.identity.cluster() == first
    assert first.generation == 0
    assert (await other.identity.next_generation()).generation == 1
    assert await plane.identity.cluster() == await other.identity.cluster()
    assert (await plane.identity.cluster()).cluster_id == first.cluster_id


async def test_all_brokers_get_one_key_for_hints(plane: ControlPlane, other: ControlPlane) -> None:
    key = await plane.identity.hint_key()
    assert len(key) == 32
    assert await other.identity.hint_key() == key
    assert await plane.identity.hint_key() == key
