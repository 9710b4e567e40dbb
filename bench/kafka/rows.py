"""The rows of the table: each is a load that people really have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from bench.kafka.load import Config, Load
from bench.kafka.running import Run, run_clients, run_java_producer
from bench.kafka.servers import Server
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

RECORD_BYTES = 1024
JAVA_RECORD_BYTES = 500
SMALL_RECORD_BYTES = 100
FRESH_RECORDS = 80_000
"""They fit into the memory that a broker has for fresh blocks."""
OLD_RECORDS = 200_000
YOUNGER_RECORDS = 250_000
"""They push the old ones out of a broker's own memory, but not out of the page cache."""
REST_SECONDS = 8
PRODUCERS = 20
CONSUMERS = 500
TUNED: Config = {"linger.ms": 20}
ONE_BY_ONE: Config = {"linger.ms": 0, "batch.num.messages": 1}
ONE_MB: dict[str, str | int] = {
    "batch.size": 1_000_000,
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": 5,
}


class Unit(NamedTuple):
    name: str
    cost: str
    cost_factor: float


MB = Unit("MB/s", "s/GB", 1e3)
REQUESTS = Unit("requests/s", "µs/request", 1e6)
CORES = Unit("cores", "", 0.0)
"""The figure itself is the cost, so less is better."""


@dataclass(frozen=True, slots=True)
class Target:
    """The topic of a row on a server, or several where topics have a fixed number of partitions."""

    server: Server
    places: list[tuple[str, int]]

    @property
    def topic(self) -> str:
        return self.places[0][0]


Work: TypeAlias = Callable[[Target, int], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    load: str
    work: Work
    """Does an amount: records of one client, or seconds of rest."""
    partitions: int = 1
    unit: Unit = MB
    scale: float = RECORD_BYTES / 1e6
    """Units in an amount of one."""
    first: int = 2_000
    """The amount of the first run, from which the size of the others is found."""
    most: int = 300_000
    """The most of a run, so that the page cache has room for all rounds."""
    stretch: float = 1.0
    """A run lasts so many times as long as others: a JVM starts within the time it measures."""
    prepare: Callable[[Target], None] | None = None
    fresh: bool = False
    """Each run has a topic of its own."""
    mock: bool = False
    """librdkafka's mock cluster is measured, too."""
    flushed: bool = False
    """A topic of Kafka with flush.messages=1 is measured, too."""

    def figure(self, amount: int, run: Run) -> float:
        if self.unit is CORES:
            return run.cpu_seconds / run.seconds
        return amount * self.scale / run.seconds

    def cost(self, amount: int, run: Run) -> float:
        """Processor time of the server for each unit."""
        return run.cpu_seconds / (amount * self.scale) * self.unit.cost_factor


def create_target(row: Row, server: Server, name: str, config: dict[str, str]) -> Target:
    target = _created(server, name, row.partitions, config)
    if row.prepare is not None:
        row.prepare(target)
    return target


def _created(server: Server, name: str, partitions: int, config: dict[str, str]) -> Target:
    width = server.partitions_of_a_topic
    if width:
        return Target(server, [(f"{name}-{n // width}", n % width) for n in range(partitions)])
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    topic = NewTopic(name, partitions, 1, config=config)
    for created in admin.create_topics([topic], request_timeout=120).values():
        created.result()
    return Target(server, [(name, partition) for partition in range(partitions)])


def _java(config: dict[str, str | int]) -> Work:
    return lambda target, records: run_java_producer(
        target.server, target.topic, records, JAVA_RECORD_BYTES, config
    )


def _clients(kind: str, config: Config, *, processes: int = 1, **more: int) -> Work:
    def work(target: Target, amount: int) -> Run:
        load = Load(
            kind=kind,
            address=target.server.address,
            places=target.places,
            amount=amount,
            config=config,
            **more,
        )
        return run_clients(target.server, [load] * processes)

    return work


PRODUCE = _clients("produce", TUNED)


def _read(passes: int) -> Work:
    # With its default of a second librdkafka pauses, and the pause would be measured.
    return _clients("consume", {"fetch.queue.backoff.ms": 2}, passes=passes)


def _write_fresh(target: Target) -> None:
    PRODUCE(target, FRESH_RECORDS)


def _write_old(target: Target) -> None:
    PRODUCE(target, OLD_RECORDS)
    younger = _created(target.server, f"{target.topic}-younger", len(target.places), {})
    PRODUCE(younger, YOUNGER_RECORDS)


def _tuned(partitions: int, *, mock: bool = False) -> Row:
    return Row(
        name=f"tuned-{partitions}",
        load=f"librdkafka, linger.ms=20, {partitions} partition(s), records of 1 KiB",
        work=PRODUCE,
        partitions=partitions,
        first=20_000,
        mock=mock,
        flushed=True,
    )


def _many_partitions(partitions: int) -> Row:
    return Row(
        name=f"partitions-{partitions}",
        load=f"librdkafka, linger.ms=20, {partitions:,} partitions in turn, records of 1 KiB",
        work=PRODUCE,
        partitions=partitions,
        first=20_000,
    )


ROWS = (
    Row(
        name="java-default",
        load="Java's producer, nothing set, one partition, records of 500 bytes",
        work=_java({}),
        scale=JAVA_RECORD_BYTES / 1e6,
        stretch=1.5,
        flushed=True,
    ),
    Row(
        name="java-1mb",
        load="Java's producer, idempotent, batches of 1 MB, 5 requests in flight",
        work=_java(ONE_MB),
        scale=JAVA_RECORD_BYTES / 1e6,
        stretch=1.5,
        first=20_000,
        most=600_000,
        flushed=True,
    ),
    Row(
        name="idempotent",
        load="librdkafka, enable.idempotence=true, 4 partitions, records of 1 KiB",
        work=_clients("produce", {"enable.idempotence": True}),
        partitions=4,
        first=20_000,
        mock=True,
        flushed=True,
    ),
    _tuned(1, mock=True),
    _tuned(16),
    _tuned(100),
    Row(
        name="small",
        load=f"{PRODUCERS} producers, one record of 100 bytes in a request, 4 partitions",
        work=_clients("produce", ONE_BY_ONE, clients=PRODUCERS, record_bytes=SMALL_RECORD_BYTES),
        partitions=4,
        unit=REQUESTS,
        scale=PRODUCERS,
        first=200,
        most=4_000,
        mock=True,
        flushed=True,
    ),
    Row(
        name="consume-fresh",
        load="one librdkafka consumer, 4 partitions, 80 MB just written, read ten times",
        work=_read(passes=10),
        partitions=4,
        scale=RECORD_BYTES * 10 / 1e6,
        first=FRESH_RECORDS,
        most=FRESH_RECORDS,
        prepare=_write_fresh,
        fresh=True,
    ),
    Row(
        name="consume-cached",
        load="the same for 200 MB out of the page cache, read four times",
        work=_read(passes=4),
        partitions=4,
        scale=RECORD_BYTES * 4 / 1e6,
        first=OLD_RECORDS,
        most=OLD_RECORDS,
        prepare=_write_old,
    ),
    _many_partitions(1_000),
    _many_partitions(5_000),
    Row(
        name="idle",
        load=f"{CONSUMERS} librdkafka consumers at rest, a group each, on one partition",
        work=_clients("rest", {}, clients=CONSUMERS),
        unit=CORES,
        first=REST_SECONDS,
        most=REST_SECONDS,
    ),
    Row(
        name="four-producers",
        load="four librdkafka producers at once, linger.ms=20, 16 partitions, records of 1 KiB",
        work=_clients("produce", TUNED, processes=4),
        partitions=16,
        scale=RECORD_BYTES * 4 / 1e6,
        first=10_000,
        most=100_000,
        flushed=True,
    ),
)
