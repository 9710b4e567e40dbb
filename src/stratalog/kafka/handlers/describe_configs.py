"""DescribeConfigs, of topics, brokers and groups."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.admin.config_description import DescribedConfig
from stratalog.admin.configs import ConfigResource
from stratalog.admin.entries import outcome_of
from stratalog.admin.rights import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.config_values import config_values
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.server.work import FEW_LARGE_ANSWERS
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


_MOST_RESOURCES = 2000
"""The configs of a topic take some 10 KiB of the answer, and several times that meanwhile."""


class DescribeConfigsHandler(Handler[DescribeConfigsBody]):
    key = ApiKey.DESCRIBE_CONFIGS
    versions = Versions(1, 4, 4)
    rights = (DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS)
    body = DescribeConfigsBody
    max_entries = _MOST_RESOURCES

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._configs = components.admin.configs

    def is_heavy(self, body: DescribeConfigsBody) -> bool:
        return len(body.resources) > FEW_LARGE_ANSWERS

    async def handle(self, request: Request, body: DescribeConfigsBody) -> Body:
        results = [await self._result(request, body, asked) for asked in body.resources]
        return write_response(ApiKey.DESCRIBE_CONFIGS, request.version, {"results": results})

    async def _result(
        self, request: Request, body: DescribeConfigsBody, asked: DescribeConfigsResource
    ) -> Values:
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        keys = asked.configuration_keys
        outcome = await outcome_of(self._configs.describe(request.principal, resource, keys))
        described: Sequence[DescribedConfig] = ()
        if not isinstance(outcome, StratalogError):
            described = outcome
        documentation = (
            request.version >= _FIRST_VERSION_WITH_DOCUMENTATION and body.include_documentation
        )
        return {
            **outcome_values(outcome),
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": [
                config_values(config, synonyms=body.include_synonyms, documentation=documentation)
                for config in described
            ],
        }
