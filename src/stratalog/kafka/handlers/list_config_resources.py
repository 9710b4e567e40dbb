"""ListConfigResources: the resources that DescribeConfigs describes. Version 0 knew client metrics
alone, of which there are none."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import ResourceType
from stratalog.admin.configs import ConfigResource
from stratalog.admin.rights import DESCRIBE_CLUSTER_CONFIGS
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

_FIRST_VERSION_WITH_TYPES = 1
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_LISTABLE = {*ResourceType, _BROKER_LOGGER, _CLIENT_METRICS}
"""The types that Kafka accepts. Loggers and metrics have no configs here, so the list has
none of them."""


class ListConfigResourcesBody(NamedTuple):
    resource_types: Sequence[int] = ()


class ListConfigResourcesHandler(Handler[ListConfigResourcesBody]):
    key = ApiKey.LIST_CONFIG_RESOURCES
    versions = Versions(0, 1, 0)
    rights = (DESCRIBE_CLUSTER_CONFIGS,)
    body = ListConfigResourcesBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._configs = components.admin.configs

    def is_heavy(self, body: ListConfigResourcesBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: ListConfigResourcesBody) -> Body:
        if request.version < _FIRST_VERSION_WITH_TYPES:
            return _response(request, ErrorCode.none, [])
        if not _LISTABLE.issuperset(body.resource_types):
            return _response(request, ErrorCode.unsupported_version, [])
        wanted = set(body.resource_types) or _LISTABLE
        types = [one for one in ResourceType if one in wanted]
        found = await self._configs.resources(request.principal, types)
        return _response(request, ErrorCode.none, found)


def _response(request: Request, code: ErrorCode, resources: Sequence[ConfigResource]) -> Body:
    listed = [{"resource_name": one.name, "resource_type": one.type} for one in resources]
    values = {"error_code": code, "config_resources": listed}
    return write_response(ApiKey.LIST_CONFIG_RESOURCES, request.version, values)
