"""AlterConfigs and IncrementalAlterConfigs, of topics and groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stratalog.admin.config_changes import AskedChange
from stratalog.admin.configs import ConfigReplacement, ConfigResource, ConfigUpdate
from stratalog.admin.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class AlterableConfig(NamedTuple):
    name: str
    value: str | None


class AlterConfigsResource(NamedTuple):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


class AlterConfigsBody(NamedTuple):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class AlterConfigsHandler(Handler[AlterConfigsBody]):
    key = ApiKey.ALTER_CONFIGS
    versions = Versions(0, 2, 2)
    rights = (ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS)
    body = AlterConfigsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._configs = components.admin.configs

    def is_heavy(self, body: AlterConfigsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: AlterConfigsBody) -> Body:
        wanted = [
            ConfigReplacement(
                resource=ConfigResource(asked.resource_type, asked.resource_name),
                configs=[(one.name, one.value) for one in asked.configs],
            )
            for asked in body.resources
        ]
        outcomes = await self._configs.replace(
            request.principal, wanted, validate_only=body.validate_only
        )
        return _response(request, (one.resource for one in wanted), outcomes)


class ConfigChange(NamedTuple):
    name: str
    config_operation: int
    value: str | None


class ChangedResource(NamedTuple):
    resource_type: int
    resource_name: str
    configs: Sequence[ConfigChange]


class IncrementalAlterConfigsBody(NamedTuple):
    resources: Sequence[ChangedResource]
    validate_only: bool


class IncrementalAlterConfigsHandler(Handler[IncrementalAlterConfigsBody]):
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions = Versions(0, 1, 1)
    rights = (ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS)
    body = IncrementalAlterConfigsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._configs = components.admin.configs

    def is_heavy(self, body: IncrementalAlterConfigsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: IncrementalAlterConfigsBody) -> Body:
        wanted = [
            ConfigUpdate(
                resource=ConfigResource(asked.resource_type, asked.resource_name),
                changes=[
                    AskedChange(one.name, one.config_operation, one.value) for one in asked.configs
                ],
            )
            for asked in body.resources
        ]
        outcomes = await self._configs.update(
            request.principal, wanted, validate_only=body.validate_only
        )
        return _response(request, (one.resource for one in wanted), outcomes)


def _response(
    request: Request, asked: Iterable[ConfigResource], outcomes: Mapping[ConfigResource, object]
) -> Body:
    """A resource that the request names twice is answered twice."""
    responses = [
        {
            "resource_type": resource.type,
            "resource_name": resource.name,
            **outcome_values(outcomes[resource]),
        }
        for resource in asked
    ]
    return write_response(request.key, request.version, {"responses": responses})
