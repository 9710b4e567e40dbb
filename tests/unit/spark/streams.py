"""A planner that only knows offsets, and stream readers that ask it."""

import re
from collections.abc import Callable, Sequence
from uuid import uuid4

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
)

from stratalog.control.scans.model import EARLIEST, Lease
from stratalog.ids import Offset, TopicId
from stratalog.scan.errors import TopicNotFoundError, TopicReplacedError
from stratalog.scan.model import (
    Positions,
    ResolvedPositions,
    ScanColumn,
    ScanPlan,
    ScanRequest,
)
from stratalog.spark.columns import spark_schema
from stratalog.spark.options import ReadOptions, stream_options
from stratalog.spark.stream_reader import StreamReader
from stratalog.testing import ManualClock

ALL = ReadAllAvailable()


class FakePlanner:
    """Partitions with a start and an end, and the requests that were made for them."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[str, int], tuple[int, int]] = {("t", 0): (0, 100)}
        self.topic_ids: dict[str, TopicId] = {}
        """Empty unless a test is about ids: then a checkpoint has none."""
        self.before_plan: Callable[[], None] = lambda: None
        self.planned: list[ScanRequest] = []
        self.taken: list[Lease] = []
        self.released: list[Lease] = []
        self.patience: list[float] = []

    def resolve(
        self,
        options: ReadOptions,
        request: ScanRequest,
        *positions: Positions,
        retry_s: float = 0,
    ) -> ResolvedPositions:
        self.patience.append(retry_s)
        names = request.pattern or "|".join(map(re.escape, request.topics or request.assign))
        offsets = [
            {
                key: Offset(first if at.default == EARLIEST else end)
                for key, (first, end) in self.ranges.items()
                if re.fullmatch(names, key[0])
            }
            for at in positions
        ]
        return ResolvedPositions(offsets, dict(self.topic_ids))

    def plan(
        self,
        options: ReadOptions,
        request: ScanRequest,
        *,
        read: Sequence[Lease] = (),
        retry_s: float = 0,
    ) -> ScanPlan:
        self.patience.append(retry_s)
        self.before_plan()
        self._check(request)
        self.planned.append(request)
        self.released += read
        lease = Lease(lease_id=uuid4(), holder="", started_ms=0, expires_ms=0)
        self.taken.append(lease)
        return ScanPlan(splits=[], ranges=[], lease=lease)

    def _check(self, request: ScanRequest) -> None:
        for topic in request.assign:
            if not any(name == topic for name, _ in self.ranges):
                raise TopicNotFoundError(f"there is no topic {topic!r}")
            found = self.topic_ids.get(topic)
            if request.topic_ids.get(topic, found) != found:
                raise TopicReplacedError(f"topic {topic!r} was deleted and created again")

    def release(self, options: ReadOptions, leases: Sequence[Lease]) -> None:
        self.released += leases


def reader(clock: ManualClock | None = None, /, **options: str) -> StreamReader:
    given = options if "subscribePattern" in options else {"topic": "t", **options}
    given = {"startingOffsets": "earliest", **given}
    schema = spark_schema([ScanColumn.OFFSET])
    return StreamReader(stream_options(given), schema, clock=clock)
