"""Questions about one partition, asked of one broker by hand, and its answer with the error."""

from datetime import timedelta
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from tests.support.clients.group_sharing import coordinator_of
from tests.support.clusters import fresh_topic
from tests.support.wire import Wire, fetch_of

from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_writer import entity_of

EARLIEST = -2
LATEST = -1


class Told(NamedTuple):
    """`code` first, so that an error cannot be overlooked in a comparison."""

    code: ErrorCode
    offset: int


def ask(wire: Wire, key: ApiKey, version: int, /, **values: Any) -> Any:
    request = entity_of(load_request_schema(key, version), values)
    return wire.ask(request, load_response_schema(key, version))


def list_offset(wire: Wire, topic: str, timestamp: int) -> Told:
    place = {"partition_index": 0, "timestamp": timestamp}
    answer = ask(
        wire,
        ApiKey.LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [place]}],
    )
    found = answer.topics[0].partitions[0]
    return Told(found.error_code, found.offset)


def boundaries(wire: Wire, topic: str, offset: int) -> tuple[ErrorCode, int, int]:
    """Return the start and end of the log as one fetch at an offset reports them."""
    found = wire.ask(fetch_of(topic, 0, offset), FetchResponse).responses[0].partitions[0]
    return found.error_code, found.log_start_offset, found.high_watermark


def delete_records(wire: Wire, topic: str, before: int) -> Told:
    place = {"partition_index": 0, "offset": before}
    answer = ask(
        wire,
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": topic, "partitions": [place]}],
        timeout=timedelta(seconds=10),
    )
    found = answer.topics[0].partitions[0]
    return Told(found.error_code, found.low_watermark)


def epoch_end(wire: Wire, topic: str, epoch: int) -> tuple[ErrorCode, int, int]:
    """The epoch and the end that the answer names."""
    place = {"partition": 0, "leader_epoch": epoch}
    answer = ask(
        wire,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        topics=[{"topic": topic, "partitions": [place]}],
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def commit_offset(wire: Wire, group: str, topic: str, offset: int) -> ErrorCode:
    """Commit without being a member."""
    place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    answer = ask(
        wire,
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": [place]}],
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed_offset(wire: Wire, group: str, topic: str, *, partition: int = 0) -> Told:
    place = {"name": topic, "partition_indexes": (partition,)}
    answer = ask(wire, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=[place])
    if answer.error_code is not ErrorCode.none:
        return Told(answer.error_code, -1)
    found = answer.topics[0].partitions[0]
    return Told(found.error_code, found.committed_offset)


def delete_offset(wire: Wire, group: str, topic: str, *, partition: int = 0) -> ErrorCode:
    place = {"name": topic, "partitions": [{"partition_index": partition}]}
    answer = ask(wire, ApiKey.OFFSET_DELETE, 0, group_id=group, topics=[place])
    if answer.error_code is not ErrorCode.none:
        return ErrorCode(answer.error_code)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def make_anew(wire: Wire, topic: str) -> None:
    """Delete a topic and create it again through this very broker. A client's administration
    would ask the one that Metadata calls the controller."""
    timeout = timedelta(seconds=10)
    deleted = ask(wire, ApiKey.DELETE_TOPICS, 4, topic_names=(topic,), timeout=timeout)
    assert deleted.responses[0].error_code is ErrorCode.none
    wanted = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": -1,
        "assignments": (),
        "configs": (),
    }
    created = ask(wire, ApiKey.CREATE_TOPICS, 4, topics=[wanted], timeout=timeout)
    assert created.topics[0].error_code is ErrorCode.none


def group_of(address: str, coordinator: str) -> str:
    """A group that this broker coordinates."""
    names = (fresh_topic("group") for _ in range(100))
    return next(name for name in names if coordinator_of(address, name) == coordinator)


def all_committed(wire: Wire, group: str, *topics: str) -> list[Told]:
    """Return the offsets that a group has committed for two partitions of each topic."""
    return [
        committed_offset(wire, group, topic, partition=partition)
        for topic in topics
        for partition in range(2)
    ]
