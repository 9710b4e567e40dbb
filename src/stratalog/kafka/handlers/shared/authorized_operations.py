"""The operations that a client is authorized for, as the bits of a number."""

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import Operation, Resource
from stratalog.kafka.wire.metadata_response import NO_OPERATIONS

_CODES = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
"""Kafka's numbers of the operations. Each is the place of its bit."""


def authorized_operations(
    authorizer: Authorizer,
    principal: Principal,
    resource: Resource,
    name: str,
    *,
    asked: bool = True,
) -> int:
    if not asked:
        return NO_OPERATIONS
    allowed = authorizer.operations(principal, resource, name)
    return sum(1 << _CODES[operation] for operation in allowed)
