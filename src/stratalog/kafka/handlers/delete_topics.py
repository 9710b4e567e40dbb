"""DeleteTopics, by name or by id."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from stratalog.admin.rights import DELETE_TOPIC
from stratalog.admin.topics import TopicName
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_TOPIC_IDS = 6


class DeleteTopicState(NamedTuple):
    name: str | None
    topic_id: UUID | None


class DeleteTopicsBody(NamedTuple):
    topic_names: Sequence[str] = ()
    topics: Sequence[DeleteTopicState] = ()


class DeleteTopicsHandler(Handler[DeleteTopicsBody]):
    key = ApiKey.DELETE_TOPICS
    versions = Versions(1, 6, 4)
    rights = (DELETE_TOPIC,)
    body = DeleteTopicsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._topics = components.admin.topics

    def is_heavy(self, body: DeleteTopicsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DeleteTopicsBody) -> Body:
        outcomes = await self._topics.delete(request.principal, _asked(request, body))
        results = [_values(asked, outcome) for asked, outcome in outcomes.items()]
        return write_response(ApiKey.DELETE_TOPICS, request.version, {"responses": results})


def _asked(request: Request, body: DeleteTopicsBody) -> list[TopicName]:
    if request.version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return [TopicName(name=name) for name in body.topic_names]
    return [TopicName(name=topic.name, topic_id=topic.topic_id) for topic in body.topics]


def _values(asked: TopicName, outcome: Topic | StratalogError) -> Values:
    """A deleted topic is named in both ways, one that was not as the request did."""
    named = asked if isinstance(outcome, StratalogError) else TopicName(outcome.name, outcome.id)
    return {"name": named.name, "topic_id": named.topic_id, **outcome_values(outcome)}
