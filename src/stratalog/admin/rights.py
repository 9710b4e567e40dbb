"""Rights that an operation needs, in the words of Kafka's ACLs."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class Operation(Enum):
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(Enum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

OPERATIONS: Mapping[Resource, tuple[Operation, ...]] = MappingProxyType(
    {
        Resource.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            *_CONFIGS,
        ),
        Resource.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
        Resource.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            *_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)
"""The operations that Kafka knows on each kind of resource."""


class Right(NamedTuple):
    operation: Operation
    resource: Resource

    def __str__(self) -> str:
        return f"{self.operation.value} {self.resource.value}"


ALTER_CLUSTER = Right(Operation.ALTER, Resource.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(Operation.ALTER_CONFIGS, Resource.CLUSTER)
ALTER_GROUP_CONFIGS = Right(Operation.ALTER_CONFIGS, Resource.GROUP)
ALTER_TOPIC = Right(Operation.ALTER, Resource.TOPIC)
ALTER_TOPIC_CONFIGS = Right(Operation.ALTER_CONFIGS, Resource.TOPIC)
CREATE_ON_CLUSTER = Right(Operation.CREATE, Resource.CLUSTER)
CREATE_TOPIC = Right(Operation.CREATE, Resource.TOPIC)
DELETE_GROUP = Right(Operation.DELETE, Resource.GROUP)
DELETE_TOPIC = Right(Operation.DELETE, Resource.TOPIC)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, Resource.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)
DESCRIBE_GROUP = Right(Operation.DESCRIBE, Resource.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, Resource.GROUP)
DESCRIBE_TOPIC = Right(Operation.DESCRIBE, Resource.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, Resource.TOPIC)
IDEMPOTENT_WRITE = Right(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER)
READ_GROUP = Right(Operation.READ, Resource.GROUP)
READ_TOPIC = Right(Operation.READ, Resource.TOPIC)
WRITE_TOPIC = Right(Operation.WRITE, Resource.TOPIC)
