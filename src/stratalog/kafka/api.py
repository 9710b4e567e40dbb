"""Which Kafka APIs this broker serves, and in which versions."""

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


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
    ApiKey.OFFSET_COMMIT: Versions(2, 10, 8),
    ApiKey.OFFSET_FETCH: Versions(1, 10, 6),
    ApiKey.FIND_COORDINATOR: Versions(0, 6, 3),
    ApiKey.JOIN_GROUP: Versions(0, 9, 6),
    ApiKey.HEARTBEAT: Versions(0, 4, 4),
    ApiKey.LEAVE_GROUP: Versions(0, 5, 4),
    ApiKey.SYNC_GROUP: Versions(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: Versions(0, 6, 5),
    ApiKey.LIST_GROUPS: Versions(0, 5, 3),
    ApiKey.API_VERSIONS: Versions(0, 4, 3),
    ApiKey.CREATE_TOPICS: Versions(2, 7, 5),
    ApiKey.DELETE_TOPICS: Versions(1, 6, 4),
    ApiKey.DELETE_RECORDS: Versions(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, 4),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4, 4),
    ApiKey.ALTER_CONFIGS: Versions(0, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Versions(1, 4, 2),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3, 2),
    ApiKey.DELETE_GROUPS: Versions(0, 2, 2),
    ApiKey.ELECT_LEADERS: Versions(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, 0),
    ApiKey.OFFSET_DELETE: Versions(0, 0, 1),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Versions(0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Versions(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, 0),
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
