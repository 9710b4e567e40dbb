"""OffsetFetch: the committed offsets of groups.

The control plane is asked each time. While it is away the answer is an error: an offset of -1 means
that nothing was ever committed, and a consumer would start over.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from stratalog.control.groups.model import CommittedOffset
from stratalog.errors import StratalogError
from stratalog.groups.group import Committer
from stratalog.ids import NO_OFFSET, PartitionIndex, TopicPartition
from stratalog.kafka.handlers.shared.offset_topics import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    AskedTopics,
    TopicKey,
    topic_key,
    topic_values,
)
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_FIRST_VERSION_WITH_ERROR = 2
_FIRST_VERSION_WITH_MANY = 8
_FIRST_VERSION_WITH_MEMBERS = 9


class OffsetFetchTopic(NamedTuple):
    partition_indexes: Sequence[int]
    name: str = ""
    topic_id: UUID | None = None


class OffsetFetchGroup(NamedTuple):
    group_id: str
    topics: Sequence[OffsetFetchTopic] | None
    member_id: str | None = None
    member_epoch: int = -1


class OffsetFetchBody(NamedTuple):
    group_id: str = ""
    topics: Sequence[OffsetFetchTopic] | None = None
    groups: Sequence[OffsetFetchGroup] = ()


class _Asked(NamedTuple):
    group_id: str
    committer: Committer
    topics: Sequence[OffsetFetchTopic] | None
    """None: all topics in which the group has committed."""


class OffsetFetchHandler(Handler[OffsetFetchBody]):
    key = ApiKey.OFFSET_FETCH
    versions = Versions(1, 10, 6)
    rights = (DESCRIBE_GROUP, DESCRIBE_TOPIC)
    body = OffsetFetchBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups
        self._catalog = components.catalog

    def is_heavy(self, body: OffsetFetchBody) -> bool:
        """An answer about all topics of a group has as many entries as the group has offsets."""
        groups = body.groups or (body,)
        return any(one.topics is None for one in groups)

    async def handle(self, request: Request, body: OffsetFetchBody) -> Body:
        version = request.version
        return _response(
            request, [await self._group(version, one) for one in _asked(version, body)]
        )

    def refuse(self, request: Request, body: OffsetFetchBody, error: Exception) -> Body:
        version = request.version
        return _response(request, [_failed(version, one, error) for one in _asked(version, body)])

    async def _group(self, version: int, asked: _Asked) -> Values:
        try:
            check_group_id(asked.group_id, may_be_empty=True)
            if asked.topics is None:
                topics = await self._all(version, asked)
            else:
                topics = await self._wanted(version, asked, asked.topics)
        except StratalogError as error:
            return _failed(version, asked, error)
        return {"group_id": asked.group_id, "error_code": ErrorCode.none, "topics": topics}

    async def _all(self, version: int, asked: _Asked) -> list[Values]:
        found = await self._groups.fetch_offsets(asked.group_id, asked.committer, None)
        topics = await self._catalog.with_ids(list({each.topic_id for each in found}))
        by_topic: dict[TopicKey, list[Values]] = {}
        for each in found:
            if each.topic_id in topics:
                by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
                key = each.topic_id if by_id else topics[each.topic_id].name
                by_topic.setdefault(key, []).append(_values(each.partition, each))
        return [
            {**topic_values(version, key), "partitions": partitions}
            for key, partitions in by_topic.items()
        ]

    async def _wanted(
        self, version: int, asked: _Asked, topics: Sequence[OffsetFetchTopic]
    ) -> list[Values]:
        known = await AskedTopics.find(
            self._catalog,
            version,
            {topic_key(version, topic): topic.partition_indexes for topic in topics},
            believes_cache=False,
        )
        partitions, codes = _existing_partitions(version, known, topics)
        found = {
            each.topic_partition: each
            for each in await self._groups.fetch_offsets(
                asked.group_id, asked.committer, list(partitions.values())
            )
        }
        return [
            {
                **topic_values(version, key),
                "partitions": [
                    _values(
                        index,
                        found.get(partitions[key, index]) if (key, index) in partitions else None,
                        codes.get((key, index), ErrorCode.none),
                    )
                    for index in topic.partition_indexes
                ],
            }
            for topic in topics
            for key in [topic_key(version, topic)]
        ]


def _existing_partitions(
    version: int, known: AskedTopics, topics: Sequence[OffsetFetchTopic]
) -> tuple[Mapping[tuple[TopicKey, int], TopicPartition], Mapping[tuple[TopicKey, int], ErrorCode]]:
    """Return the partitions that exist. As in Kafka, an unknown name is no error and has no
    offsets, while an unknown id is an error."""
    partitions, codes = {}, {}
    for topic in topics:
        key = topic_key(version, topic)
        for index in topic.partition_indexes:
            try:
                topic_id = known.topic(key, index).id
                partitions[key, index] = TopicPartition(topic_id, PartitionIndex(index))
            except StratalogError as error:
                if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                    codes[key, index] = code_of(error)
    return partitions, codes


def _asked(version: int, body: OffsetFetchBody) -> list[_Asked]:
    nobody = Committer(member_id="", instance_id=None, epoch=-1)
    if version < _FIRST_VERSION_WITH_MANY:
        return [_Asked(body.group_id, nobody, body.topics)]
    return [
        _Asked(
            group.group_id,
            Committer(group.member_id or "", None, group.member_epoch)
            if version >= _FIRST_VERSION_WITH_MEMBERS
            else nobody,
            group.topics,
        )
        for group in body.groups
    ]


def _values(index: int, found: CommittedOffset | None, code: ErrorCode = ErrorCode.none) -> Values:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if found is None else found.offset,
        "committed_leader_epoch": -1 if found is None else found.leader_epoch,
        "metadata": "" if found is None else found.metadata,
        "error_code": code,
    }


def _failed(version: int, asked: _Asked, error: Exception) -> Values:
    """Before version 2 the response has room for errors in its partitions only."""
    code = group_code_of(error)
    topics: list[Values] = []
    if version < _FIRST_VERSION_WITH_ERROR:
        topics = [
            {
                "name": topic.name,
                "partitions": [_values(index, None, code) for index in topic.partition_indexes],
            }
            for topic in asked.topics or ()
        ]
    return {"group_id": asked.group_id, "error_code": code, "topics": topics}


def _response(request: Request, groups: list[Values]) -> Body:
    many = request.version >= _FIRST_VERSION_WITH_MANY
    values = {"groups": groups} if many else groups[0]
    return write_response(ApiKey.OFFSET_FETCH, request.version, values)
