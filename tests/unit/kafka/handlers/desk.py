"""A dispatcher in front of topics that live in memory, asked with kio's messages."""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from tests.support.ledgers import FakeControlPlane
from tests.unit.kafka.handlers.marks import Marks
from tests.unit.kafka.wire.samples import encoded

from stratalog.admin.admin import BrokerAdmin
from stratalog.admin.authorizer import Authorizer
from stratalog.clock import Clock, SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.brokers.errors import BrokerAliveError, BrokerNotRegisteredError
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.log.dry_runs import WouldGo
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import (
    ActiveProducer,
    EpochEnd,
    EpochQuery,
    PartitionState,
    RecordsDeleted,
    Span,
    TimeQuery,
    WriteTier,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.settings.model import ClusterSettingsNow
from stratalog.control.topics.errors import TopicExistsError, UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition
from stratalog.kafka.fetches.sessions import FetchSessions
from stratalog.kafka.registry import dispatcher, served
from stratalog.kafka.server.acceptor import Accepted, Entering, InTurn, Response, Running
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.work import Workplace
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_writer import entity_of
from stratalog.metrics import Metrics
from stratalog.segment.model import AbortedTransaction
from stratalog.settings import Settings
from stratalog.testing import ManualClock
from stratalog.topic.append import PendingAppend, TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.model import (
    PartitionRead,
    PartitionWrite,
    PartitionWritten,
    ReadWork,
    TimedOffset,
)
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.read import TopicReader
from stratalog.topic.watermarks import Watch

CLUSTER_ID = UUID(int=0xC1)
SESSION = Session(number=1, listener="127.0.0.1:9092", client_host="/127.0.0.1")
BROKERS = [
    BrokerInfo(
        broker_id=BrokerId(number),
        host=f"host-{number}",
        port=9000 + number,
        rack=None,
        incarnation=UUID(int=number),
        alive=True,
    )
    for number in (3, 5)
]


class TopicsInMemory(FakeControlPlane):
    """The part of a control plane that concerns topics and producer ids."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[TopicId, Topic] = {}
        self.allocations = 0
        self.registered = list(BROKERS)
        self.group_configs: dict[str, dict[str, str]] = {}
        self.failure: Exception | None = None

    async def brokers_all(self) -> list[BrokerInfo]:
        return self.registered

    async def brokers_unregister(self, broker_id: BrokerId) -> None:
        found = [one for one in self.registered if one.broker_id == broker_id]
        if not found:
            raise BrokerNotRegisteredError(f"there is no broker {broker_id}")
        if found[0].alive:
            raise BrokerAliveError(f"broker {broker_id} is alive: stop it first")
        self.registered.remove(found[0])

    async def groups_configs(self) -> dict[str, dict[str, str]]:
        return self.group_configs

    async def settings_now(self) -> ClusterSettingsNow:
        return ClusterSettingsNow(now_ms=0, settings={})

    async def log_would_expire(self, *_: object, **__: object) -> WouldGo:
        return WouldGo()

    async def topics_partition_total(self) -> int:
        return sum(topic.partition_count for topic in self.by_id.values())

    async def topics_create(
        self, name: str, *, partition_count: int, configs: Mapping[str, str]
    ) -> Topic:
        if await self.topics_named([name]):
            raise TopicExistsError(f"topic {name!r} exists")
        topic = Topic(
            id=TopicId(UUID(int=len(self.by_id) + 1)),
            name=name,
            partition_count=partition_count,
            configs=dict(configs),
            created_ms=0,
        )
        self.by_id[topic.id] = topic
        return topic

    async def topics_all(self) -> list[Topic]:
        return sorted(self.by_id.values(), key=lambda topic: topic.name)

    async def topics_named(self, names: Sequence[str]) -> list[Topic]:
        if self.failure is not None:
            raise self.failure
        return [topic for topic in self.by_id.values() if topic.name in names]

    async def topics_with_ids(self, ids: Sequence[TopicId]) -> list[Topic]:
        return [self.by_id[key] for key in ids if key in self.by_id]

    async def topics_add_partitions(self, topic_id: TopicId, *, partition_count: int) -> Topic:
        grown = replace(self.by_id[topic_id], partition_count=partition_count)
        self.by_id[topic_id] = grown
        return grown

    async def topics_delete(self, topic_id: TopicId) -> None:
        if self.by_id.pop(topic_id, None) is None:
            raise UnknownTopicError("gone")

    async def topics_set_configs(
        self, topic_id: TopicId, changes: Mapping[str, str | None]
    ) -> Topic:
        topic = self.by_id[topic_id]
        merged = {**topic.configs, **changes}
        kept = {name: value for name, value in merged.items() if value is not None}
        self.by_id[topic_id] = replace(topic, configs=kept)
        return self.by_id[topic_id]

    async def log_partitions(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """Every partition goes from 2 to 10 and has 100 bytes for its index, and 100 more."""
        return {key: self._state(key) for key in wanted if self._exists(key)}

    def _state(self, key: TopicPartition) -> PartitionState:
        epoch = self.by_id[key.topic_id].leader_epochs.get(key.partition, LeaderEpoch(0))
        return replace(_state(key), leader_epoch=epoch)

    async def log_delete_records(
        self, targets: Mapping[TopicPartition, Offset]
    ) -> list[RecordsDeleted]:
        deleted = []
        for key, offset in targets.items():
            if not self._exists(key):
                raise UnknownTopicError("gone")
            if not -1 <= offset <= _END:
                raise OffsetOutOfRangeError("out of range")
            log_start = Offset(_END if offset == -1 else max(offset, _START))
            deleted.append(RecordsDeleted(**key._asdict(), log_start=log_start))
        return deleted

    async def log_epoch_ends(self, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
        """Epoch 4 is the current one; the one before it was 2, up to offset 6."""
        ends = {2: (2, 6), 3: (2, 6), 4: (4, _END)}
        return [
            EpochEnd(LeaderEpoch(4), *map(LeaderEpoch, ends.get(query.epoch, (-1, -1))))  # type: ignore[arg-type]
            if self._exists(query.partition)
            else None
            for query in queries
        ]

    async def log_active_producers(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        one = ActiveProducer(ProducerId(77), 2, 41, 5000)
        return {key: [one] if key.partition == 0 else [] for key in wanted}

    def _exists(self, key: TopicPartition) -> bool:
        topic = self.by_id.get(key.topic_id)
        return topic is not None and 0 <= key.partition < topic.partition_count

    async def log_allocate_producer_ids(self, count: int) -> ProducerId:
        self.allocations += 1
        return ProducerId(self.allocations * count)


_START = 2
_END = 10


def _state(key: TopicPartition) -> PartitionState:
    return PartitionState(
        topic_id=key.topic_id,
        partition=key.partition,
        log_start=Offset(_START),
        remote_end=Offset(0),
        block_start=Offset(0),
        block_end=Offset(_END),
        high_watermark=Offset(_END),
        last_stable=Offset(8),
        write_tier=WriteTier.BLOCK,
        leader_epoch=LeaderEpoch(0),
        size_bytes=100 + 100 * key.partition,
        last_commit_ms=0,
    )


class Appends(TopicAppender):
    """Notes writes in their order. Answers at once, or when `held` is set."""

    def __init__(self) -> None:
        self.writes: list[PartitionWrite] = []
        self.senders: list[int] = []
        self.answer = PartitionWritten(base_offset=Offset(42), log_start=Offset(7))
        self.failure: Exception | None = None
        self.held: asyncio.Event | None = None

    def begin(self, writes: Sequence[PartitionWrite], sender: int) -> PendingAppend:
        self.senders.append(sender)
        self.writes += writes
        return _Pending(self, len(writes))


class _Pending(PendingAppend):
    def __init__(self, appends: Appends, count: int) -> None:
        self._appends = appends
        self._count = count
        held = appends.held.wait() if appends.held is not None else asyncio.sleep(0)
        self.done = asyncio.ensure_future(held)

    def answers(self) -> list[PartitionWritten]:
        if self._appends.failure is not None:
            raise self._appends.failure
        return [self._appends.answer] * self._count


@dataclass
class Held:
    start: int = 2
    stable: int = 8
    end: int = 10
    data: bytes = b"some records"


class Reads(TopicReader):
    """Every partition exists and holds the same, but for those in `own`."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.own: dict[int, Held] = {}
        self.partition = Held()
        self.asked: list[tuple[Sequence[Span], int, int, int]] = []
        self.committed: list[bool] = []
        self.error: Any = None
        self.aborted: Sequence[AbortedTransaction] = ()

    async def read(
        self,
        spans: Sequence[Span],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        committed: bool = False,
        work: ReadWork | None = None,
    ) -> list[PartitionRead]:
        self.asked.append((spans, max_bytes, min_bytes, max_wait_ms))
        self.committed.append(committed)
        return [self._read(span) for span in spans]

    def watch(self) -> Watch:
        return self.marks.watch(())

    async def read_watched(
        self,
        watch: Watch,
        wanted: Callable[[Iterable[TopicPartition]], Sequence[Span]],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        committed: bool = False,
        work: ReadWork | None = None,
    ) -> list[tuple[Span, PartitionRead]]:
        spans = wanted(watch.rest())
        answers = await self.read(
            spans,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            committed=committed,
        )
        return list(zip(spans, answers, strict=True))

    def _read(self, span: Span) -> PartitionRead:
        held = self.own.get(span.partition, self.partition)
        error = self.error
        if not held.start <= span.offset <= held.end:
            error = OffsetOutOfRangeError("out of range")
        return PartitionRead(
            error=error,
            high_watermark=Offset(held.end),
            last_stable=Offset(held.stable),
            log_start=Offset(held.start),
            parts=(held.data,) if held.data and not error and span.offset < held.end else (),
            aborted=self.aborted,
        )


class Offsets(TopicOffsets):
    """Of the same partitions."""

    def __init__(self) -> None:
        self.partition = Held()
        self.at: TimedOffset | None = TimedOffset(offset=Offset(4), timestamp=1000, leader_epoch=0)
        self.time_failure: Exception | None = None

    def _all(
        self, wanted: Sequence[TopicPartition], offset: int
    ) -> dict[TopicPartition, TimedOffset]:
        found = TimedOffset(offset=Offset(offset), timestamp=-1, leader_epoch=0)
        return {key: found for key in wanted if key.partition < 10}

    async def earliest(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, TimedOffset]:
        return self._all(wanted, self.partition.start)

    async def earliest_local(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset]:
        return self._all(wanted, self.partition.start + 1)

    async def latest_tiered(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        return {key: None for key in wanted if key.partition < 10}

    async def latest(
        self, wanted: Sequence[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, TimedOffset]:
        return self._all(wanted, self.partition.stable if committed else self.partition.end)

    async def newest(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        return {key: self.at if key.partition < 10 else None for key in wanted}

    async def at_time(self, queries: Sequence[TimeQuery]) -> list[TimedOffset | None]:
        if self.time_failure is not None:
            raise self.time_failure
        return [self.at if query.partition < 10 else None for query in queries]


@dataclass
class Desk:
    settings: Settings = field(default_factory=Settings)
    authorizer: Authorizer = field(default_factory=Authorizer)

    def __post_init__(self) -> None:
        self.control = TopicsInMemory()
        self.appends = Appends()
        self.reads = Reads()
        self.offsets = Offsets()
        control = self.control
        clock = SystemClock()
        self.clock = ManualClock()
        self.session = replace(SESSION, at_end={})
        self.membership = _membership(control, clock)
        groups = GroupCoordinator(control=control, membership=self.membership, clock=clock)
        catalog = TopicCatalog(control=control, clock=clock)
        consumer_groups = ConsumerGroups(groups, catalog, self.settings.groups, clock=clock)
        requests = RequestMetrics(Metrics(), served())
        self.metrics = Metrics()
        self.fetch_sessions = FetchSessions(self.settings, clock=self.clock, metrics=self.metrics)
        self.components = Components(
            metrics=requests,
            failures=ReadFailures(clock),
            fetch_sessions=self.fetch_sessions,
            admin=BrokerAdmin(
                control=control,
                catalog=catalog,
                settings=self.settings,
                membership=self.membership,
                groups=groups,
                consumer_groups=consumer_groups,
                authorizer=self.authorizer,
            ),
            settings=self.settings,
            membership=self.membership,
            control=control,
            catalog=catalog,
            appender=self.appends,
            reader=self.reads,
            offsets=self.offsets,
            groups=groups,
            classic_groups=ClassicGroups(groups, self.settings.groups),
            consumer_groups=consumer_groups,
        )
        self.workplace = Workplace.open(self.settings.broker, clock)
        self.dispatcher = dispatcher(
            self.components,
            clock=clock,
            metrics=requests,
            workplace=self.workplace,
        )

    async def accept(self, key: ApiKey, version: int, /, **values: Any) -> Running | InTurn:
        return await begun(self.dispatcher.accept(framed(key, version, values), self.session))

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """The response as kio reads it."""
        return await self.ask_as("c", key, version, **values)

    async def ask_as(self, client_id: str, key: ApiKey, version: int, /, **values: Any) -> Any:
        return await self.ask_on(self.session, client_id, key, version, **values)

    async def ask_on(
        self, session: Session, client_id: str, key: ApiKey, version: int, /, **values: Any
    ) -> Any:
        frame = framed(key, version, values, client_id)
        accepted = await begun(self.dispatcher.accept(frame, session))
        try:
            response = await answered(accepted)
        finally:
            accepted.release()
        assert response is not None
        return parsed(key, version, b"".join(response))


def _membership(control: ControlPlane, clock: Clock) -> Membership:
    membership = Membership(
        control=control,
        clock=clock,
        cluster_id=CLUSTER_ID,
        incarnation=UUID(int=3),
        lease_ms=1000,
        registration=BROKERS[0],
    )
    membership._live = list(BROKERS)
    return membership


def framed(key: ApiKey, version: int, values: Mapping[str, Any], client_id: str = "c") -> bytearray:
    """A request without the length in front of it."""
    body = encoded(entity_of(load_request_schema(key, version), values))
    tags = b"\x00" if served()[key].is_flexible(version) else b""
    name = client_id.encode()
    head = struct.pack(f">hhih{len(name)}s", key, version, 77, len(name), name)
    return bytearray(head + tags + body)


async def begun(accepted: Accepted) -> Running | InTurn:
    return await accepted.entered if isinstance(accepted, Entering) else accepted


async def answered(accepted: Accepted) -> Response:
    one = await begun(accepted)
    if isinstance(one, InTurn):
        return await one.begin()
    await asyncio.wait([one.done])
    return one.respond()


def parsed(key: ApiKey, version: int, response: bytes) -> Any:
    size, correlation_id = struct.unpack_from(">ii", response)
    assert size == len(response) - 4
    assert correlation_id == 77
    start = 9 if served()[key].is_flexible(version) and key is not ApiKey.API_VERSIONS else 8
    schema: Any = load_response_schema(key, version)
    entity, read = entity_reader(schema)(response, start)
    assert start + read == len(response)
    return entity
