"""DeleteTopics, by name or by id."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import DuplicateEntryError
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import CallError, StratalogError
from stratalog.ids import TopicId
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.errors import UnknownTopicIdError
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_TOPIC_IDS = 6


class _Asked(NamedTuple):
    name: str | None
    topic_id: UUID | None


class DeleteTopicState(NamedTuple):
    name: str | None
    topic_id: UUID | None


class DeleteTopicsBody(NamedTuple):
    topic_names: Sequence[str] = ()
    topics: Sequence[DeleteTopicState] = ()


class DeleteTopicsHandler(Handler[DeleteTopicsBody]):
    key = ApiKey.DELETE_TOPICS
    versions = Versions(1, 6, 4)
    rights = (Right(Operation.DELETE, Resource.TOPIC),)
    body = DeleteTopicsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog

    async def handle(self, request: Request, body: DeleteTopicsBody) -> Body:
        times = Counter(_all_asked(request, body))
        results = [await self._result(asked, count) for asked, count in times.items()]
        return write_response(ApiKey.DELETE_TOPICS, request.version, {"responses": results})

    async def _result(self, asked: _Asked, times: int) -> Values:
        try:
            if times > 1:
                raise DuplicateEntryError("the request names this topic more than once")
            topic = await self._found(asked)
            await self._catalog.delete(topic)
        except StratalogError as error:
            return _values(asked, error)
        return _values(_Asked(topic.name, topic.id), None)

    async def _found(self, asked: _Asked) -> Topic:
        if asked.topic_id is None:
            if asked.name is None:
                raise CallError("a topic to delete has a name or an id")
            named = await self._catalog.refreshed([asked.name])
            if asked.name not in named:
                raise UnknownTopicError(f"there is no topic {asked.name!r}")
            return named[asked.name]
        if asked.name is not None:
            raise CallError("a topic to delete has a name or an id, not both")
        identified = await self._catalog.with_ids([TopicId(asked.topic_id)])
        if asked.topic_id not in identified:
            raise UnknownTopicIdError(f"no topic has the id {asked.topic_id}")
        return identified[TopicId(asked.topic_id)]


def _all_asked(request: Request, body: DeleteTopicsBody) -> list[_Asked]:
    if request.version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return [_Asked(name, None) for name in body.topic_names]
    return [_Asked(topic.name, topic.topic_id) for topic in body.topics]


def _values(asked: _Asked, error: Exception | None) -> Values:
    return {
        "name": asked.name,
        "topic_id": asked.topic_id,
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
    }
