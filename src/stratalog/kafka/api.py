"""Which Kafka APIs this broker serves, and in which versions."""

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    DESCRIBE_CONFIGS = 32
    CREATE_PARTITIONS = 37
    DESCRIBE_CLUSTER = 60


class Versions(NamedTuple):
    first: int
    last: int
    first_flexible: int
    """From here on strings and arrays are compact, and headers carry tagged fields."""


SERVED: dict[ApiKey, Versions] = {
    ApiKey.PRODUCE: Versions(3, 13, 9),
    ApiKey.FETCH: Versions(4, 18, 12),
    ApiKey.LIST_OFFSETS: Versions(1, 11, 6),
    ApiKey.METADATA: Versions(0, 13, 9),
    ApiKey.FIND_COORDINATOR: Versions(0, 6, 3),
    ApiKey.API_VERSIONS: Versions(0, 4, 3),
    ApiKey.CREATE_TOPICS: Versions(2, 7, 5),
    ApiKey.DELETE_TOPICS: Versions(1, 6, 4),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5, 2),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4, 4),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3, 2),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2, 0),
}

ADVERTISED_PRODUCE_FIRST = 0
"""Produce 0 to 2 are named although they are refused, as Kafka 4 does: librdkafka takes a
higher minimum for a broker that cannot compress (KAFKA-18659)."""


def advertised() -> list[tuple[ApiKey, int, int]]:
    """Key, first and last version of every API, as ApiVersions tells them."""
    return [
        (key, ADVERTISED_PRODUCE_FIRST if key is ApiKey.PRODUCE else served.first, served.last)
        for key, served in SERVED.items()
    ]


def is_flexible(key: ApiKey, version: int) -> bool:
    return version >= SERVED[key].first_flexible
