"""Decides whether a principal has a right. No other part of the code does."""

from stratalog.admin.errors import (
    ClusterAccessDeniedError,
    GroupAccessDeniedError,
    TopicAccessDeniedError,
)
from stratalog.admin.principal import Principal
from stratalog.admin.rights import OPERATIONS, Operation, Resource, Right
from stratalog.errors import StratalogError

CLUSTER = "kafka-cluster"
"""Kafka's name for the one resource of the kind `Cluster`."""

_DENIALS: dict[Resource, type[StratalogError]] = {
    Resource.TOPIC: TopicAccessDeniedError,
    Resource.GROUP: GroupAccessDeniedError,
    Resource.CLUSTER: ClusterAccessDeniedError,
}


class Authorizer:
    """Allows everything to everyone. A cluster with ACLs overrides `allows`.

    `allows` answers from memory, because some callers stand on the path of every request.
    """

    def allows(self, principal: Principal, right: Right, name: str) -> bool:  # noqa: ARG002
        return True

    def authorize(self, principal: Principal, right: Right, name: str) -> None:
        """Raise an error of the resource's kind unless the principal has the right to it."""
        if not self.allows(principal, right, name):
            denial = _DENIALS[right.resource]
            raise denial(f"{principal} does not have the right {right} on {name!r}")

    def operations(self, principal: Principal, resource: Resource, name: str) -> list[Operation]:
        """Return the operations that the principal has the right to."""
        return [
            operation
            for operation in OPERATIONS[resource]
            if self.allows(principal, Right(operation, resource), name)
        ]

    def authorize_on_cluster(self, principal: Principal, right: Right) -> None:
        self.authorize(principal, right, CLUSTER)
