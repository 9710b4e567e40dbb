"""OffsetCommit: stores the offsets of a group. It is answered when they are durable."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import READ_GROUP, READ_TOPIC
from stratalog.control.groups.model import OffsetToCommit
from stratalog.errors import StratalogError
from stratalog.groups.errors import MetadataTooLargeError
from stratalog.groups.group import Committer
from stratalog.ids import Offset, PartitionIndex
from stratalog.kafka.handlers.shared.offset_topics import (
    AskedTopics,
    TopicKey,
    topic_key,
    topic_values,
    unknown_topic,
)
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

log = logging.getLogger(__name__)

LONGEST_METADATA = 4096
"""In characters, like Kafka's offset.metadata.max.bytes, despite its name."""
_FIRST_VERSION_WITH_EPOCHS = 6
_FIRST_VERSION_WITH_INSTANCES = 7
_FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
_NO_EPOCH = -1
_MOST_LOGGED_GROUPS = 100

RequestedPartition: TypeAlias = tuple[TopicKey, int]
"""The topic as the request names it, and the partition."""


class OffsetCommitPartition(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = -1


class OffsetCommitTopic(NamedTuple):
    partitions: Sequence[OffsetCommitPartition]
    name: str = ""
    topic_id: UUID | None = None


class OffsetCommitBody(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: Sequence[OffsetCommitTopic]
    group_instance_id: str | None = None


class OffsetCommitHandler(Handler[OffsetCommitBody]):
    key = ApiKey.OFFSET_COMMIT
    versions = Versions(2, 10, 8)
    rights = (READ_GROUP, READ_TOPIC)
    body = OffsetCommitBody
    in_turn = False

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups
        self._catalog = components.catalog

    async def handle(self, request: Request, body: OffsetCommitBody) -> Body:
        check_group_id(body.group_id, may_be_empty=True)
        topics = await self._topics(request, body)
        codes: dict[RequestedPartition, ErrorCode] = {}
        offsets: dict[RequestedPartition, OffsetToCommit] = {}
        for asked in body.topics:
            key = topic_key(request.version, asked)
            for partition in asked.partitions:
                requested = (key, partition.partition_index)
                try:
                    offsets[requested] = _offset(request, topics, key, partition)
                except StratalogError as error:
                    codes[requested] = code_of(error)
        codes |= await self._commit(request, body, offsets)
        return _response(request, body, lambda key, index: codes[key, index])

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)

    async def _topics(self, request: Request, body: OffsetCommitBody) -> AskedTopics:
        wanted = {
            topic_key(request.version, asked): [one.partition_index for one in asked.partitions]
            for asked in body.topics
        }
        return await AskedTopics.find(self._catalog, request.version, wanted, believes_cache=True)

    async def _commit(
        self,
        request: Request,
        body: OffsetCommitBody,
        offsets: Mapping[RequestedPartition, OffsetToCommit],
    ) -> dict[RequestedPartition, ErrorCode]:
        if not offsets:
            return {}
        named = request.version >= _FIRST_VERSION_WITH_INSTANCES
        committer = Committer(
            member_id=body.member_id,
            instance_id=body.group_instance_id if named else None,
            epoch=body.generation_id_or_member_epoch,
            knows_member_epochs=request.version >= _FIRST_VERSION_WITH_MEMBER_EPOCHS,
            client_host=request.session.client_host,
        )
        try:
            left_out = await self._groups.commit_offsets(
                body.group_id, committer, list(offsets.values())
            )
        except StratalogError as error:
            return dict.fromkeys(offsets, group_code_of(error))
        if not body.member_id:
            _log_outsider(request, body.group_id, len(offsets))
        for partition in left_out:
            # The name may belong to a new topic by now, which the next commit shall find.
            self._catalog.forget(partition.topic_id)
        return {
            requested: code_of(unknown_topic(request.version, *requested))
            if offset.topic_partition in left_out
            else ErrorCode.none
            for requested, offset in offsets.items()
        }


def _log_outsider(request: Request, group_id: str, count: int) -> None:
    """An admin resets offsets so, once. A reader without a group does it all the time, and is
    logged once per connection."""
    logged = request.session.logged_groups
    if group_id in logged or len(logged) >= _MOST_LOGGED_GROUPS:
        return
    logged.add(group_id)
    log.info(
        "%s sets offsets of group %r in %d partitions, without being a member.",
        request.principal.with_client,
        group_id,
        count,
    )


def _offset(
    request: Request, topics: AskedTopics, key: TopicKey, partition: OffsetCommitPartition
) -> OffsetToCommit:
    topic = topics.topic(key, partition.partition_index)
    metadata = partition.committed_metadata or ""
    if len(metadata) > LONGEST_METADATA:
        raise MetadataTooLargeError(f"the text has more than {LONGEST_METADATA} characters")
    has_epoch = request.version >= _FIRST_VERSION_WITH_EPOCHS
    return OffsetToCommit(
        topic_id=topic.id,
        partition=PartitionIndex(partition.partition_index),
        offset=Offset(partition.committed_offset),
        leader_epoch=partition.committed_leader_epoch if has_epoch else _NO_EPOCH,
        metadata=metadata,
    )


def _response(
    request: Request, body: OffsetCommitBody, code_at: Callable[[TopicKey, int], ErrorCode]
) -> Body:
    topics = []
    for asked in body.topics:
        key = topic_key(request.version, asked)
        partitions = [
            {
                "partition_index": one.partition_index,
                "error_code": code_at(key, one.partition_index),
            }
            for one in asked.partitions
        ]
        topics.append({**topic_values(request.version, key), "partitions": partitions})
    return write_response(ApiKey.OFFSET_COMMIT, request.version, {"topics": topics})
