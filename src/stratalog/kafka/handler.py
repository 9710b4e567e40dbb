"""What the handler of one API looks like to the dispatcher."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from stratalog.kafka.request import Request
from stratalog.kafka.wire import Buffer

Body: TypeAlias = Sequence[Buffer]
"""A response without its header."""


class Handler(Protocol):
    """`body` is what `schema_reader` made of the request; its fields are those of the schema."""

    async def handle(self, request: Request, body: Any) -> Body: ...

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        """The answer that tells the error for everything that was asked."""
