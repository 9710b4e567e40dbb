from uuid import UUID

import pytest

from stratalog.checks.marker import (
    ControlPlaneBehindError,
    MarkerDamagedError,
    StoreMarker,
    WrongStoreError,
    check_marker,
    encode_marker,
    parse_marker,
)
from stratalog.control.model import Cluster

HERE = UUID(int=1)
MARKER = StoreMarker(cluster_id=HERE, generation=5)


def test_a_marker_comes_back_as_it_was_written() -> None:
    assert parse_marker(encode_marker(MARKER)) == MARKER


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
        b"[" * 100_000,
    ],
)
def test_a_marker_that_cannot_be_read_says_what_to_do(data: bytes) -> None:
    with pytest.raises(MarkerDamagedError, match=r"stratalog.json is not a marker.*delete"):
        parse_marker(data)


def test_a_marker_of_a_newer_format_asks_for_an_upgrade() -> None:
    data = encode_marker(MARKER).replace(b'"format": 1', b'"format": 2')
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
