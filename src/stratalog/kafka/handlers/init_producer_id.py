"""InitProducerId: a number for an idempotent producer.

As in Kafka, a producer without a transactional id always gets a new number with epoch 0, also when
it comes with an old one (KIP-360). A transactional id is refused: there is no coordinator yet.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.block.errors import TransactionsUnsupportedError
from stratalog.control.plane import ControlPlane
from stratalog.ids import NO_PRODUCER, ProducerId
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response

_IDS_PER_ALLOCATION = 1000
"""As Kafka. What a stopping broker has not given out is lost, and 2**63 are many."""


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
                self._next = await self._control.allocate_producer_ids(_IDS_PER_ALLOCATION)
                self._end = self._next + _IDS_PER_ALLOCATION
            taken = ProducerId(self._next)
            self._next += 1
        return taken


class InitProducerIdHandler:
    def __init__(self, components: Components) -> None:
        self._ids = ProducerIds(components.control)

    async def handle(self, request: Request, body: Any) -> Body:
        if body.transactional_id is not None:
            raise TransactionsUnsupportedError("this broker does not support transactions yet")
        return _response(request, ErrorCode.none, await self._ids.take(), 0)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, code_of(error), NO_PRODUCER, -1)


def _response(request: Request, code: ErrorCode, producer_id: ProducerId, epoch: int) -> Body:
    return write_response(
        ApiKey.INIT_PRODUCER_ID,
        request.version,
        {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch},
    )
