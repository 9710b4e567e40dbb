"""DescribeConfigs, of topics and brokers."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import (
    DescribedConfig,
    ResourceType,
    describe_broker,
    describe_topic,
)
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import CallError, StratalogError
from stratalog.kafka.handlers.shared.config_values import config_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_DOCUMENTATION = 3


class DescribeConfigsResource(NamedTuple):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsBody(NamedTuple):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool = False


class DescribeConfigsHandler(Handler[DescribeConfigsBody]):
    key = ApiKey.DESCRIBE_CONFIGS
    versions = Versions(1, 4, 4)
    rights = (
        Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
        Right(Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
    )
    body = DescribeConfigsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._membership = components.membership
        self._settings = components.settings

    async def handle(self, request: Request, body: DescribeConfigsBody) -> Body:
        results = [await self._result(request, body, asked) for asked in body.resources]
        return write_response(ApiKey.DESCRIBE_CONFIGS, request.version, {"results": results})

    async def _result(
        self, request: Request, body: DescribeConfigsBody, asked: DescribeConfigsResource
    ) -> Values:
        try:
            configs = await self._configs(asked)
        except StratalogError as error:
            return _failed(asked, error)
        documentation = (
            request.version >= _FIRST_VERSION_WITH_DOCUMENTATION and body.include_documentation
        )
        keys = asked.configuration_keys
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": [
                config_values(config, synonyms=body.include_synonyms, documentation=documentation)
                for config in configs
                if not keys or config.name in keys
            ],
        }

    async def _configs(self, asked: DescribeConfigsResource) -> Sequence[DescribedConfig]:
        name = asked.resource_name
        if asked.resource_type == ResourceType.TOPIC:
            found = await self._catalog.refreshed([name])
            if name not in found:
                raise UnknownTopicError(f"there is no topic {name!r}")
            return describe_topic(self._settings.topic, found[name].configs)
        if asked.resource_type == ResourceType.BROKER:
            return self._broker_configs(name)
        raise CallError(f"resources of type {asked.resource_type} have no configs here")

    def _broker_configs(self, name: str) -> Sequence[DescribedConfig]:
        """An empty name stands for the cluster's dynamic defaults, of which there are none."""
        if not name:
            return []
        own = self._membership.broker_id
        if name != str(own):
            raise CallError(f"this is broker {own}: ask broker {name} for its configs")
        return describe_broker(self._settings, own)


def _failed(asked: DescribeConfigsResource, error: Exception) -> Values:
    return {
        "error_code": code_of(error),
        "error_message": message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [],
    }
