"""AlterConfigs and IncrementalAlterConfigs, of topics.

Brokers find a change when they next look the topic up, which is within seconds. A broker's own
configs are its settings, and change with a restart alone.
"""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import Topic
from stratalog.control.plane import UnknownTopicError
from stratalog.errors import CallError, StratalogError
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.config_changes import AskedChange, Changes, incremental, replacing
from stratalog.kafka.config_description import ResourceType
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.errors import DuplicateEntryError
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response


class _AlteringHandler(ABC):
    _key: ApiKey

    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._defaults = components.settings.topic

    async def handle(self, request: Request, body: Any) -> Body:
        times = Counter((asked.resource_type, asked.resource_name) for asked in body.resources)
        results = [
            await self._result(asked, times, validate_only=body.validate_only)
            for asked in body.resources
        ]
        return write_response(self._key, request.version, {"responses": results})

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [_values(asked, error) for asked in body.resources]
        return write_response(self._key, request.version, {"responses": results})

    async def _result(
        self, asked: Any, times: "Counter[tuple[int, str]]", *, validate_only: bool
    ) -> Values:
        try:
            if times[asked.resource_type, asked.resource_name] > 1:
                raise DuplicateEntryError(f"{asked.resource_name!r} is named more than once")
            topic = await self._topic(asked)
            changes = self._changes(topic, asked)
            if not validate_only:
                await self._catalog.set_configs(topic, changes)
        except StratalogError as error:
            return _values(asked, error)
        return _values(asked, None)

    async def _topic(self, asked: Any) -> Topic:
        name = asked.resource_name
        if asked.resource_type == ResourceType.BROKER:
            raise CallError("a broker's configs are its settings: change them and restart it")
        if asked.resource_type != ResourceType.TOPIC:
            raise CallError(f"resources of type {asked.resource_type} have no configs here")
        found = await self._catalog.refreshed([name])
        if name not in found:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found[name]

    @abstractmethod
    def _changes(self, topic: Topic, asked: Any) -> Changes: ...


class AlterConfigsHandler(_AlteringHandler):
    _key = ApiKey.ALTER_CONFIGS

    def _changes(self, topic: Topic, asked: Any) -> Changes:
        return replacing(topic.configs, [(one.name, one.value) for one in asked.configs])


class IncrementalAlterConfigsHandler(_AlteringHandler):
    _key = ApiKey.INCREMENTAL_ALTER_CONFIGS

    def _changes(self, topic: Topic, asked: Any) -> Changes:
        changes = [AskedChange(one.name, one.config_operation, one.value) for one in asked.configs]
        return incremental(self._defaults, topic.configs, changes)


def _values(asked: Any, error: Exception | None) -> Values:
    return {
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }
