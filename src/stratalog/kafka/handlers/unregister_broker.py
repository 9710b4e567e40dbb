"""UnregisterBroker: forgets a broker that has stopped."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import ALTER_CLUSTER
from stratalog.ids import BrokerId
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class UnregisterBrokerBody(NamedTuple):
    broker_id: int


class UnregisterBrokerHandler(Handler[UnregisterBrokerBody]):
    key = ApiKey.UNREGISTER_BROKER
    versions = Versions(0, 0, 0)
    rights = (ALTER_CLUSTER,)
    body = UnregisterBrokerBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._brokers = components.admin.brokers

    async def handle(self, request: Request, body: UnregisterBrokerBody) -> Body:
        await self._brokers.unregister(request.principal, BrokerId(body.broker_id))
        values = {"error_code": ErrorCode.none, "error_message": None}
        return write_response(self.key, request.version, values)
