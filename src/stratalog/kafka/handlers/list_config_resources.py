"""ListConfigResources: what DescribeConfigs can be asked about. Version 0 knew client metrics
alone, of which there are none."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.config_description import ResourceType
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_FIRST_VERSION_WITH_TYPES = 1
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_LISTABLE = {
    ResourceType.TOPIC,
    ResourceType.BROKER,
    _BROKER_LOGGER,
    _CLIENT_METRICS,
    _GROUP,
}
"""What Kafka takes. Loggers, metrics and groups have no configs here, so none is listed."""


class ListConfigResourcesHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._membership = components.membership

    async def handle(self, request: Request, body: Any) -> Body:
        if request.version < _FIRST_VERSION_WITH_TYPES:
            return _response(request, ErrorCode.none, [])
        if not _LISTABLE.issuperset(body.resource_types):
            return _response(request, ErrorCode.unsupported_version, [])
        found = await self._resources(frozenset(body.resource_types) or _LISTABLE)
        return _response(request, ErrorCode.none, found)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, code_of(error), [])

    async def _resources(self, wanted: frozenset[int] | set[int]) -> list[Values]:
        found: list[Values] = []
        if ResourceType.BROKER in wanted:
            live = self._membership.live()
            found += [_resource(ResourceType.BROKER, str(each.broker_id)) for each in live]
        if ResourceType.TOPIC in wanted:
            topics = await self._catalog.all()
            found += [_resource(ResourceType.TOPIC, topic.name) for topic in topics]
        return found


def _resource(kind: ResourceType, name: str) -> Values:
    return {"resource_name": name, "resource_type": kind}


def _response(request: Request, code: ErrorCode, resources: Sequence[Values]) -> Body:
    values = {"error_code": code, "config_resources": resources}
    return write_response(ApiKey.LIST_CONFIG_RESOURCES, request.version, values)
