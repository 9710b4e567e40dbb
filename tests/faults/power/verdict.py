"""Opens the state that a power cut left, and compares it with the promises."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kio.schema.errors import ErrorCode
from tests.faults.aftermath import Ground, standing_on
from tests.faults.power.history import Promised, Sent
from tests.faults.power.workload import PARTITIONS, TOPIC, batch, settings_at
from tests.support.wire import Wire, connected

from stratalog.checks.fsck import run_fsck
from stratalog.control.log.model import PartitionState
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.testing.broker import Broker


def judge(folder: Path, promised: Promised) -> None:
    """Raise unless the state keeps every promise, and the cluster goes on in it."""
    settings = settings_at(folder)
    with Broker(settings) as broker, connected(broker.bootstrap) as wire:
        states = asyncio.run(_look(folder, promised))
        if states:
            for partition in range(PARTITIONS):
                _read(wire, promised, states[partition], partition)
            _go_on(wire, promised)
    asyncio.run(_check_store(folder))


async def _look(folder: Path, promised: Promised) -> Sequence[PartitionState]:
    async with standing_on(settings_at(folder).storage) as ground:
        topics = {topic.name: topic for topic in await ground.control.topics.all()}
        assert promised.topics - promised.deleting <= set(topics), "a topic is lost"
        assert not promised.deleted_topics & set(topics), "a deleted topic came back"
        if TOPIC not in topics:
            return []
        return await _states(ground, topics[TOPIC])


async def _states(ground: Ground, topic: Topic) -> Sequence[PartitionState]:
    keys = [TopicPartition(topic.id, PartitionIndex(each)) for each in range(PARTITIONS)]
    found = await ground.control.log.partitions(keys)
    return [found[key] for key in keys]


def _read(wire: Wire, promised: Promised, state: PartitionState, partition: int) -> None:
    """Everything that was acknowledged is at its offset; of the batch under way, all or nothing."""
    assert promised.trimmed[partition] <= state.log_start <= promised.trimming[partition]
    values = wire.fetch_values(TOPIC, partition=partition, start=state.log_start)
    found = {
        state.log_start + n: (value or b"").decode("latin-1") for n, value in enumerate(values)
    }
    assert len(found) == state.high_watermark - state.log_start, "not all offsets can be read"
    acknowledged = promised.acknowledged[partition]
    for offset, value in acknowledged.items():
        if offset >= state.log_start:
            assert found.pop(offset, None) == value, f"offset {offset} of partition {partition}"
    possible = [[], *([*sent.values] for sent in _sent_to(partition, promised.in_flight))]
    assert [*found.values()] in possible, "records that were neither sent nor acknowledged"


def _sent_to(partition: int, batches: Sequence[Sent]) -> list[Sent]:
    return [sent for sent in batches if sent.partition == partition]


def _go_on(wire: Wire, promised: Promised) -> None:
    """The producers repeat the batch under way, or their last one, and send another."""
    for partition in range(PARTITIONS):
        idempotent = [s for s in _sent_to(partition, promised.sent) if s.sequence is not None]
        if not idempotent:
            continue
        last = idempotent[-1]
        assert last.sequence is not None
        following = last.sequence + len(last.values)
        for sequence, values in ((last.sequence, last.values), (following, ("after the cut",))):
            answer = wire.produce(TOPIC, batch(sequence, values), partition=partition)
            assert answer.error_code is ErrorCode.none, answer
            read = wire.fetch_values(TOPIC, partition=partition, start=answer.base_offset)
            wanted = [value.encode() for value in values]
            assert read[: len(values)] == wanted, f"{values} are not at {answer.base_offset}"
            assert read.count(wanted[0]) == 1, f"{values} are there twice"


async def _check_store(folder: Path) -> None:
    """The janitor, to which everything is old enough, takes nothing that is in use."""
    async with standing_on(settings_at(folder).storage) as ground:
        await ground.clean()
        report = await run_fsck(ground.control, ground.store, deep=True, orphan_age_ms=0)
        assert not report.damaged, [str(finding) for finding in report.findings]
