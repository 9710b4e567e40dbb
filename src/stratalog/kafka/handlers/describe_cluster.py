"""DescribeCluster: the live brokers, and the dead ones for a client that asks for them."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.authorizer import CLUSTER
from stratalog.admin.rights import DESCRIBE_CLUSTER, Resource
from stratalog.ids import kafka_base64
from stratalog.kafka.handlers.shared.authorized_operations import authorized_operations
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class DescribeClusterBody(NamedTuple):
    include_cluster_authorized_operations: bool
    include_fenced_brokers: bool = False
    """Brokers that are registered and dead. Kafka calls them fenced."""


class DescribeClusterHandler(Handler[DescribeClusterBody]):
    key = ApiKey.DESCRIBE_CLUSTER
    versions = Versions(0, 2, 0)
    rights = (DESCRIBE_CLUSTER,)
    body = DescribeClusterBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._membership = components.membership
        self._brokers = components.admin.brokers
        self._authorizer = components.admin.authorizer

    async def handle(self, request: Request, body: DescribeClusterBody) -> Body:
        shown = live = self._membership.live()
        if body.include_fenced_brokers:
            live_ids = {broker.broker_id for broker in live}
            every = await self._brokers.all(request.principal)
            shown = [*live, *(broker for broker in every if broker.broker_id not in live_ids)]
        brokers = [
            {
                "broker_id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "is_fenced": broker not in live,
            }
            for broker in shown
        ]
        operations = authorized_operations(
            self._authorizer,
            request.principal,
            Resource.CLUSTER,
            CLUSTER,
            asked=body.include_cluster_authorized_operations,
        )
        values = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "cluster_id": kafka_base64(self._membership.cluster_id),
            "controller_id": min(broker.broker_id for broker in live),
            "brokers": brokers,
            "cluster_authorized_operations": operations,
        }
        return write_response(ApiKey.DESCRIBE_CLUSTER, request.version, values)
