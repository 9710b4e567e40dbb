"""DescribeCluster: the live brokers."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_CLUSTER
from stratalog.ids import kafka_base64
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class DescribeClusterBody(NamedTuple):
    """The options of a request make no difference: the answer is always the live brokers."""


class DescribeClusterHandler(Handler[DescribeClusterBody]):
    key = ApiKey.DESCRIBE_CLUSTER
    versions = Versions(0, 2, 0)
    rights = (DESCRIBE_CLUSTER,)
    body = DescribeClusterBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._membership = components.membership

    async def handle(self, request: Request, body: DescribeClusterBody) -> Body:  # noqa: ARG002
        live = self._membership.live()
        brokers = [
            {
                "broker_id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "is_fenced": False,
            }
            for broker in live
        ]
        values = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "cluster_id": kafka_base64(self._membership.cluster_id),
            "controller_id": min(broker.broker_id for broker in live),
            "brokers": brokers,
        }
        return write_response(ApiKey.DESCRIBE_CLUSTER, request.version, values)
