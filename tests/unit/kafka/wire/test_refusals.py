"""Responses to requests that failed as a whole."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.refusals import refusal

CODE = ErrorCode.kafka_storage_error


class Names(NamedTuple):
    names: Sequence[str]


class Partitions(NamedTuple):
    topic: str
    partitions: Sequence[int]


class Topics(NamedTuple):
    topics: Sequence[Partitions]


def refused(key: ApiKey, version: int, body: object) -> Any:
    return refusal(key, version, body, CODE, "the store is away")


def versions(key: ApiKey, first: int = 0) -> range:
    return range(max(first, served()[key].first), served()[key].last + 1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_a_bare_name_fills_only_the_field_that_names_the_element(version: int) -> None:
    values = refused(ApiKey.DESCRIBE_GROUPS, version, Names(["a", "b"]))
    assert [group["group_id"] for group in values["groups"]] == ["a", "b"]
    for group in values["groups"]:
        assert group["error_code"] is CODE
        assert (group["group_state"], group["protocol_type"], group["protocol_data"]) == ("",) * 3
        assert group["members"] == ()


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR, first=4))
def test_a_refused_search_for_coordinators_names_no_host(version: int) -> None:
    (found,) = refused(ApiKey.FIND_COORDINATOR, version, Names(["a"]))["coordinators"]
    assert found == {
        "key": "a",
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": CODE,
        "error_message": "the store is away",
    }


def test_an_error_at_the_top_stands_for_all_elements() -> None:
    values = refused(ApiKey.LEAVE_GROUP, 5, Names(["a"]))
    assert values["error_code"] is CODE
    assert values["members"] == ()


def test_without_room_at_the_top_every_element_has_the_error() -> None:
    body = Topics([Partitions("orders", [0, 7])])
    (topic,) = refused(ApiKey.ELECT_LEADERS, 0, body)["replica_election_results"]
    assert topic["topic"] == "orders"
    partitions = [(one["partition_id"], one["error_code"]) for one in topic["partition_result"]]
    assert partitions == [(0, CODE), (7, CODE)]
