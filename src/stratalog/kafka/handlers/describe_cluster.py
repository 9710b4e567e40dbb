"""DescribeCluster: the live brokers."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.ids import kafka_base64
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response


class DescribeClusterHandler:
    def __init__(self, components: Components) -> None:
        self._membership = components.membership

    async def handle(self, request: Request, body: Any) -> Body:  # noqa: ARG002
        return self._response(request, None)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return self._response(request, error)

    def _response(self, request: Request, error: Exception | None) -> Body:
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
            "error_code": ErrorCode.none if error is None else code_of(error),
            "error_message": None if error is None else message_of(error),
            "cluster_id": kafka_base64(self._membership.cluster_id),
            "controller_id": min(broker.broker_id for broker in live),
            "brokers": brokers,
        }
        return write_response(ApiKey.DESCRIBE_CLUSTER, request.version, values)
