"""ListConfigResources: what DescribeConfigs can be asked about. Version 0 knew client metrics
alone, of which there are none."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import ResourceType
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

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


class ListConfigResourcesBody(NamedTuple):
    resource_types: Sequence[int] = ()


class ListConfigResourcesHandler(Handler[ListConfigResourcesBody]):
    key = ApiKey.LIST_CONFIG_RESOURCES
    versions = Versions(0, 1, 0)
    rights = (Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),)
    body = ListConfigResourcesBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._membership = components.membership

    async def handle(self, request: Request, body: ListConfigResourcesBody) -> Body:
        if request.version < _FIRST_VERSION_WITH_TYPES:
            return _response(request, ErrorCode.none, [])
        if not _LISTABLE.issuperset(body.resource_types):
            return _response(request, ErrorCode.unsupported_version, [])
        found = await self._resources(frozenset(body.resource_types) or _LISTABLE)
        return _response(request, ErrorCode.none, found)

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
