"""InitProducerId: a number for an idempotent producer.

As in Kafka, a producer without a transactional id always gets a new number with epoch 0, also when
it comes with an old one (KIP-360). A transactional id is refused: there is no coordinator yet.
"""

import asyncio
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import IDEMPOTENT_WRITE, WRITE_TOPIC
from stratalog.control.plane import ControlPlane
from stratalog.ids import ProducerId
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response
from stratalog.topic.errors import TransactionsUnsupportedError

_IDS_PER_ALLOCATION = 1000
"""As in Kafka. A broker that stops loses the ids that it has not used, of which there are 2**63."""


class ProducerIds:
    """Gives out producer ids from blocks that the control plane reserves for this broker."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    async def take(self) -> ProducerId:
        async with self._allocating:
            if self._next == self._end:
                self._next = await self._control.log.allocate_producer_ids(_IDS_PER_ALLOCATION)
                self._end = self._next + _IDS_PER_ALLOCATION
            taken = ProducerId(self._next)
            self._next += 1
        return taken


class InitProducerIdBody(NamedTuple):
    transactional_id: str | None


class InitProducerIdHandler(Handler[InitProducerIdBody]):
    key = ApiKey.INIT_PRODUCER_ID
    versions = Versions(0, 5, 2)
    rights = (IDEMPOTENT_WRITE, WRITE_TOPIC)
    body = InitProducerIdBody
    in_turn = False

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._ids = ProducerIds(components.control)

    async def handle(self, request: Request, body: InitProducerIdBody) -> Body:
        if body.transactional_id is not None:
            raise TransactionsUnsupportedError("this broker does not support transactions yet")
        return _response(request, ErrorCode.none, await self._ids.take(), 0)


def _response(request: Request, code: ErrorCode, producer_id: ProducerId, epoch: int) -> Body:
    return write_response(
        ApiKey.INIT_PRODUCER_ID,
        request.version,
        {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch},
    )
