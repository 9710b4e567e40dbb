"""DescribeConfigs, of topics and brokers."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.plane import UnknownTopicError
from stratalog.errors import CallError, StratalogError
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.config_description import (
    DescribedConfig,
    ResourceType,
    describe_broker,
    describe_topic,
)
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_FIRST_VERSION_WITH_DOCUMENTATION = 3


class DescribeConfigsHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._membership = components.membership
        self._settings = components.settings

    async def handle(self, request: Request, body: Any) -> Body:
        results = [await self._result(request, body, asked) for asked in body.resources]
        return write_response(ApiKey.DESCRIBE_CONFIGS, request.version, {"results": results})

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [_failed(asked, error) for asked in body.resources]
        return write_response(ApiKey.DESCRIBE_CONFIGS, request.version, {"results": results})

    async def _result(self, request: Request, body: Any, asked: Any) -> Values:
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
                config.values(synonyms=body.include_synonyms, documentation=documentation)
                for config in configs
                if not keys or config.name in keys
            ],
        }

    async def _configs(self, asked: Any) -> Sequence[DescribedConfig]:
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


def _failed(asked: Any, error: Exception) -> Values:
    return {
        "error_code": code_of(error),
        "error_message": message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [],
    }
