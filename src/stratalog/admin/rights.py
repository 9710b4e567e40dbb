"""Rights that an operation needs, in the words of Kafka's ACLs."""

from enum import Enum
from typing import NamedTuple


class Operation(Enum):
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(Enum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Right(NamedTuple):
    operation: Operation
    resource: Resource

    def __str__(self) -> str:
        return f"{self.operation.value} {self.resource.value}"
