"""DescribeLogDirs: how many bytes each partition holds.

Brokers have no log directories, but monitoring and quotas ask for sizes here. Each broker tells
of the partitions it leads, so that the sum over all brokers counts every partition once. The one
directory is the object store, whose free space is not known.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import LOG_DIR
from stratalog.admin.partitions import PartitionSize
from stratalog.admin.rights import DESCRIBE_CLUSTER
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_UNKNOWN_BYTES = -1


class DescribableLogDirTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsBody(NamedTuple):
    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsHandler(Handler[DescribeLogDirsBody]):
    key = ApiKey.DESCRIBE_LOG_DIRS
    versions = Versions(1, 4, 2)
    rights = (DESCRIBE_CLUSTER,)
    body = DescribeLogDirsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._partitions = components.admin.partitions

    def is_heavy(self, body: DescribeLogDirsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DescribeLogDirsBody) -> Body:
        sizes = await self._partitions.led_sizes(request.principal, _wanted(body))
        topics = [
            {"name": name, "partitions": [_partition(one) for one in found]}
            for name, found in sizes.items()
        ]
        return _response(request, ErrorCode.none, topics)

    def refuse(self, request: Request, body: DescribeLogDirsBody, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, code_of(error), [])


def _wanted(body: DescribeLogDirsBody) -> Mapping[str, Sequence[int]] | None:
    """A request may name a topic several times, with other partitions."""
    if body.topics is None:
        return None
    wanted: dict[str, list[int]] = {}
    for asked in body.topics:
        wanted.setdefault(asked.topic, []).extend(asked.partitions)
    return wanted


def _partition(size: PartitionSize) -> Values:
    return {
        "partition_index": size.partition,
        "partition_size": size.size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }


def _response(request: Request, code: ErrorCode, topics: Sequence[Values]) -> Body:
    directory = {
        "error_code": code,
        "log_dir": LOG_DIR,
        "topics": topics,
        "total_bytes": _UNKNOWN_BYTES,
        "usable_bytes": _UNKNOWN_BYTES,
    }
    values = {"error_code": code, "results": [directory]}
    return write_response(ApiKey.DESCRIBE_LOG_DIRS, request.version, values)
