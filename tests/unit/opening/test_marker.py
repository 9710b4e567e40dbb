from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.clock import SystemClock
from stratalog.control.identity.model import UNNAMED, Cluster, StoreRole
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import check_store
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerDamagedError,
    MarkerMissingError,
    WrongStoreError,
)
from stratalog.opening.marker import (
    MARKER_KEY,
    StoreMarker,
    check_marker,
    encode_marker,
    parse_marker,
)

HERE = UUID(int=1)
MARKER = StoreMarker(cluster_id=HERE, generation=5)


def test_a_marker_comes_back_as_it_was_written() -> None:
    assert parse_marker(encode_marker(MARKER)) == MARKER
    named = replace(MARKER, store_id=UUID(int=2), claim_id=UUID(int=3))
    assert parse_marker(encode_marker(named)) == named


def test_a_marker_of_the_first_format_is_read() -> None:
    data = b'{"cluster_id": "00000000-0000-0000-0000-000000000001", "generation": 5, "format": 1}'
    assert parse_marker(data) == MARKER


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"format": 1, "cluster_id": "x", "generation": 1}',
        b'{"format": 1, "cluster_id": 7, "generation": 1}',
        b'{"format": null, "cluster_id": "x", "generation": 1}',
        b'{"format": 1e999, "cluster_id": "x", "generation": 1}',
        b"[" * 100_000,
    ],
)
def test_a_marker_that_cannot_be_read_says_what_to_do(data: bytes) -> None:
    with pytest.raises(MarkerDamagedError, match=r"stratalog.json is not a marker.*delete"):
        parse_marker(data)


def test_a_marker_of_a_newer_format_asks_for_an_upgrade() -> None:
    data = encode_marker(MARKER).replace(b'"format": 2', b'"format": 3')
    with pytest.raises(WrongStoreError, match="upgrade"):
        parse_marker(data)


@pytest.mark.parametrize("generation", [5, 6])
def test_a_control_plane_at_or_above_the_markers_generation_may_go_on(generation: int) -> None:
    check_marker(MARKER, Cluster(cluster_id=HERE, generation=generation))


def test_a_control_plane_below_the_markers_generation_was_restored() -> None:
    with pytest.raises(ControlPlaneBehindError, match="restored from a backup"):
        check_marker(MARKER, Cluster(cluster_id=HERE, generation=4))


def test_a_store_of_another_cluster_is_refused() -> None:
    with pytest.raises(WrongStoreError, match=r"storage\.objects or storage\.control"):
        check_marker(MARKER, Cluster(cluster_id=UUID(int=2), generation=9))


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    opened = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield opened
    await opened.close()


@pytest.fixture
def store() -> ObjectStore:
    return open_store("memory:", clock=SystemClock())


async def test_a_store_needs_a_marker_as_soon_as_a_broker_has_started(
    control: ControlPlane, store: ObjectStore
) -> None:
    await check_store(control, store)
    cluster = await control.identity.next_claim(StoreRole.BLOCKS, UNNAMED, None)
    assert cluster is not None
    with pytest.raises(MarkerMissingError, match=r"check storage\.objects"):
        await check_store(control, store)
    marker = StoreMarker(
        cluster_id=cluster.cluster_id,
        generation=cluster.generation,
        store_id=cluster.store_id,
        claim_id=UUID(cluster.claims_on(StoreRole.BLOCKS)[-1]),
    )
    await store.put(MARKER_KEY, [encode_marker(marker)])
    await check_store(control, store)


async def test_a_store_of_another_cluster_is_refused_before_any_broker_has_started(
    control: ControlPlane, store: ObjectStore
) -> None:
    await store.put(MARKER_KEY, [encode_marker(MARKER)])
    with pytest.raises(WrongStoreError):
        await check_store(control, store)
