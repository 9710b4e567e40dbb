"""AlterConfigs and IncrementalAlterConfigs, of topics.

Brokers find a change when they next look the topic up, which is within seconds. A broker's own
configs are its settings, and change with a restart alone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_changes import AskedChange, Changes, incremental, replacing
from stratalog.admin.config_description import ResourceType
from stratalog.admin.errors import DuplicateEntryError
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import CallError, StratalogError
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class _Alteration(NamedTuple):
    """One resource of a request, and the changes that the request makes of a topic's configs."""

    resource_type: int
    resource_name: str
    changes: Callable[[Topic], Changes]


class _Alterations:
    """The part that both APIs have in common."""

    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog

    async def results(self, asked: Sequence[_Alteration], *, validate_only: bool) -> list[Values]:
        times = Counter((one.resource_type, one.resource_name) for one in asked)
        return [await self._result(one, times, validate_only=validate_only) for one in asked]

    async def _result(
        self, asked: _Alteration, times: "Counter[tuple[int, str]]", *, validate_only: bool
    ) -> Values:
        try:
            if times[asked.resource_type, asked.resource_name] > 1:
                raise DuplicateEntryError(f"{asked.resource_name!r} is named more than once")
            topic = await self._topic(asked)
            changes = asked.changes(topic)
            if not validate_only:
                await self._catalog.set_configs(topic, changes)
        except StratalogError as error:
            return _values(asked, error)
        return _values(asked, None)

    async def _topic(self, asked: _Alteration) -> Topic:
        name = asked.resource_name
        if asked.resource_type == ResourceType.BROKER:
            raise CallError("a broker's configs are its settings: change them and restart it")
        if asked.resource_type != ResourceType.TOPIC:
            raise CallError(f"resources of type {asked.resource_type} have no configs here")
        found = await self._catalog.refreshed([name])
        if name not in found:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found[name]


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
    rights = (
        Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),
        Right(Operation.ALTER_CONFIGS, Resource.TOPIC),
    )
    body = AlterConfigsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._alterations = _Alterations(components)

    async def handle(self, request: Request, body: AlterConfigsBody) -> Body:
        asked = [
            _Alteration(each.resource_type, each.resource_name, partial(self._changes, each))
            for each in body.resources
        ]
        results = await self._alterations.results(asked, validate_only=body.validate_only)
        return write_response(self.key, request.version, {"responses": results})

    def _changes(self, asked: AlterConfigsResource, topic: Topic) -> Changes:
        return replacing(topic.configs, [(one.name, one.value) for one in asked.configs])


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
    rights = (
        Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),
        Right(Operation.ALTER_CONFIGS, Resource.TOPIC),
    )
    body = IncrementalAlterConfigsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._alterations = _Alterations(components)
        self._defaults = components.settings.topic

    async def handle(self, request: Request, body: IncrementalAlterConfigsBody) -> Body:
        asked = [
            _Alteration(each.resource_type, each.resource_name, partial(self._changes, each))
            for each in body.resources
        ]
        results = await self._alterations.results(asked, validate_only=body.validate_only)
        return write_response(self.key, request.version, {"responses": results})

    def _changes(self, asked: ChangedResource, topic: Topic) -> Changes:
        changes = [AskedChange(one.name, one.config_operation, one.value) for one in asked.configs]
        return incremental(self._defaults, topic.configs, changes)


def _values(asked: _Alteration, error: Exception | None) -> Values:
    return {
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }
