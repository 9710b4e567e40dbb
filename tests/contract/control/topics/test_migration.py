"""The switch from local files to blocks, and the state that says how far a partition is."""

from dataclasses import replace
from uuid import uuid4

import pytest
from tests.contract.control.building import batch, change, commit, outcomes, part, state_of
from tests.contract.control.segment_building import epoch, finished

from stratalog.control.log.model import CommitOutcome, PartitionState, WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import MigrationRefusedError, UnknownTopicError
from stratalog.control.topics.migration_state import (
    MigrationState,
    Tier,
    check_state,
    check_transition,
    migration_state,
    tier_of,
)
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition

ADOPTED = PartitionState(
    topic_id=TopicId(uuid4()),
    partition=PartitionIndex(0),
    log_start=Offset(3),
    remote_end=Offset(10),
    block_start=Offset(10),
    block_end=Offset(10),
    high_watermark=Offset(10),
    last_stable=Offset(10),
    write_tier=WriteTier.LOCAL,
    leader_epoch=LeaderEpoch(4),
    size_bytes=0,
    last_commit_ms=0,
)
BLOCKS = replace(
    ADOPTED, write_tier=WriteTier.BLOCK, block_end=Offset(15), high_watermark=Offset(15)
)


@pytest.fixture
async def local(plane: ControlPlane, topic: Topic, database: Database) -> Topic:
    """A topic that wrote 10 offsets of each partition into local files; 7 of them are tiered."""
    await change(
        database,
        "UPDATE partitions SET write_tier = 'local', remote_end = 7, block_start = 10,"
        " block_end = 10",
    )
    await change(database, "UPDATE heads SET high_watermark = 10, leader_epoch = 4")
    await change(database, "UPDATE epochs SET leader_epoch = 4, start_offset = 2")
    return topic


async def migration_of(plane: ControlPlane, key: TopicPartition) -> MigrationState:
    state = await state_of(plane, key)
    assert check_state(state) == []
    return migration_state(state)


async def test_a_topic_is_switched_to_blocks_and_becomes_hybrid(
    plane: ControlPlane, local: Topic
) -> None:
    key = part(local, 1)
    assert await migration_of(plane, key) is MigrationState.TIERED_ONLY
    assert outcomes(await commit(plane, batch(key))) == [CommitOutcome.WRONG_TIER]
    await plane.topics.begin_migration(local.id)
    assert await migration_of(plane, key) is MigrationState.MIGRATING
    assert outcomes(await commit(plane, batch(key))) == [CommitOutcome.WRONG_TIER]
    await plane.topics.switch_to_blocks(local.id)
    state = await state_of(plane, key)
    assert (state.block_start, state.block_end, state.write_tier) == (10, 10, WriteTier.BLOCK)
    assert (state.leader_epoch, state.migrating, state.remote_end) == (5, False, 7)
    assert await migration_of(plane, key) is MigrationState.MIGRATING
    [answer] = await commit(plane, batch(key, 3))
    assert (answer.outcome, answer.base_offset) == (CommitOutcome.ACCEPTED, 10)
    assert answer.leader_epoch == 5
    # The local remainder goes to the remote tier.
    await plane.segments.chain(await finished(plane, key, 7, 9))
    assert await migration_of(plane, key) is MigrationState.HYBRID
    await plane.log.delete_records({key: NO_OFFSET})
    assert await migration_of(plane, key) is MigrationState.DISKLESS_ONLY


async def test_a_switch_begins_an_epoch_at_the_high_watermark(
    plane: ControlPlane, local: Topic
) -> None:
    await plane.topics.begin_migration(local.id)
    [before] = await plane.topics.all()
    await plane.topics.switch_to_blocks(local.id)
    for index in range(3):
        assert await plane.log.epochs(part(local, index)) == [epoch(4, 2), epoch(5, 10)]
    [topic] = await plane.topics.all()
    assert topic.leader_epochs == {0: 5, 1: 5, 2: 5}
    assert (before.write_tiers, topic.write_tiers) == (dict.fromkeys(range(3), WriteTier.LOCAL), {})


async def test_every_step_may_be_repeated(plane: ControlPlane, local: Topic) -> None:
    key = part(local)
    for _ in range(2):
        await plane.topics.begin_migration(local.id)
    for _ in range(2):
        await plane.topics.abort_migration(local.id)
        assert await migration_of(plane, key) is MigrationState.TIERED_ONLY
    await plane.topics.begin_migration(local.id)
    await plane.topics.switch_to_blocks(local.id)
    await commit(plane, batch(key, 3))
    before = await state_of(plane, key)
    await plane.topics.switch_to_blocks(local.id)
    assert await state_of(plane, key) == before


async def test_a_switch_wants_every_partition_to_have_begun(
    plane: ControlPlane, local: Topic, database: Database
) -> None:
    with pytest.raises(MigrationRefusedError, match="partition 0 has not begun"):
        await plane.topics.switch_to_blocks(local.id)
    await plane.topics.begin_migration(local.id)
    await change(database, "UPDATE partitions SET migrating_since_ms = NULL WHERE partition = 2")
    with pytest.raises(MigrationRefusedError, match="partition 2 has not begun"):
        await plane.topics.switch_to_blocks(local.id)
    for index in range(3):
        assert (await state_of(plane, part(local, index))).write_tier is WriteTier.LOCAL


async def test_after_the_switch_there_is_no_way_back(plane: ControlPlane, local: Topic) -> None:
    await plane.topics.begin_migration(local.id)
    await plane.topics.switch_to_blocks(local.id)
    with pytest.raises(MigrationRefusedError):
        await plane.topics.abort_migration(local.id)
    with pytest.raises(MigrationRefusedError):
        await plane.topics.begin_migration(local.id)


async def test_a_diskless_topic_has_nothing_to_migrate(plane: ControlPlane, topic: Topic) -> None:
    assert await migration_of(plane, part(topic)) is MigrationState.DISKLESS_ONLY
    with pytest.raises(MigrationRefusedError):
        await plane.topics.begin_migration(topic.id)
    await plane.topics.switch_to_blocks(topic.id)
    assert (await state_of(plane, part(topic))).leader_epoch == 0


async def test_partitions_that_were_added_meanwhile_are_left_as_they_are(
    plane: ControlPlane, local: Topic
) -> None:
    await plane.topics.add_partitions(local.id, partition_count=4)
    await commit(plane, batch(part(local, 3), 2))
    await plane.topics.begin_migration(local.id)
    await plane.topics.switch_to_blocks(local.id)
    added = await state_of(plane, part(local, 3))
    assert (added.block_start, added.leader_epoch) == (0, 0)
    assert (await state_of(plane, part(local, 2))).write_tier is WriteTier.BLOCK


async def test_a_block_range_that_is_not_empty_refuses_the_migration(
    plane: ControlPlane, local: Topic, database: Database
) -> None:
    await change(database, "UPDATE partitions SET block_start = 8 WHERE partition = 1")
    with pytest.raises(MigrationRefusedError, match=r"partition 1 .*blocks serve 8 to 10"):
        await plane.topics.begin_migration(local.id)


async def test_an_unknown_topic_is_not_migrated(plane: ControlPlane, local: Topic) -> None:
    await plane.topics.delete(local.id)
    for step in (
        plane.topics.begin_migration,
        plane.topics.abort_migration,
        plane.topics.switch_to_blocks,
    ):
        with pytest.raises(UnknownTopicError):
            await step(local.id)
    assert await plane.log.epochs(part(local)) == []


# The states themselves.


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ADOPTED, MigrationState.TIERED_ONLY),
        (replace(ADOPTED, migrating=True), MigrationState.MIGRATING),
        (replace(BLOCKS, remote_end=Offset(9)), MigrationState.MIGRATING),
        (replace(BLOCKS, remote_end=Offset(9), log_start=Offset(9)), MigrationState.MIGRATING),
        (replace(BLOCKS, remote_end=Offset(9), log_start=Offset(10)), MigrationState.DISKLESS_ONLY),
        (BLOCKS, MigrationState.HYBRID),
        (replace(BLOCKS, log_start=Offset(9)), MigrationState.HYBRID),
        (replace(BLOCKS, log_start=Offset(10)), MigrationState.DISKLESS_ONLY),
    ],
)
def test_the_state_follows_from_the_offsets(
    state: PartitionState, expected: MigrationState
) -> None:
    assert migration_state(state) is expected
    assert check_state(state) == []


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (replace(BLOCKS, migrating=True), "under way"),
        (replace(BLOCKS, block_end=Offset(14)), "block_end 14"),
        (replace(BLOCKS, remote_end=Offset(11)), "remote_end 11"),
        (replace(ADOPTED, block_start=Offset(9)), "blocks serve 9 to 10"),
    ],
)
def test_offsets_that_fit_no_state_are_named(state: PartitionState, named: str) -> None:
    [breach] = check_state(state)
    assert named in breach


STATES = {
    MigrationState.TIERED_ONLY: ADOPTED,
    MigrationState.MIGRATING: replace(ADOPTED, migrating=True),
    MigrationState.HYBRID: BLOCKS,
    MigrationState.DISKLESS_ONLY: replace(BLOCKS, log_start=Offset(10)),
}


def test_only_these_ways_lead_from_state_to_state() -> None:
    allowed = {
        (before.name, after.name)
        for before in STATES
        for after in STATES
        if before is not after and not check_transition(STATES[before], STATES[after])
    }
    assert allowed == {
        ("TIERED_ONLY", "MIGRATING"),
        ("MIGRATING", "TIERED_ONLY"),
        ("MIGRATING", "HYBRID"),
        ("MIGRATING", "DISKLESS_ONLY"),
        ("HYBRID", "DISKLESS_ONLY"),
        ("DISKLESS_ONLY", "HYBRID"),
    }
    assert all(check_transition(state, state) == [] for state in STATES.values())


def test_a_switch_is_not_undone_although_the_remainder_is_still_local() -> None:
    switched = replace(BLOCKS, remote_end=Offset(9))
    assert check_transition(switched, replace(ADOPTED, migrating=True, remote_end=Offset(9)))
    assert check_transition(replace(ADOPTED, migrating=True), switched) == []


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2, Tier.NONE),
        (3, Tier.REMOTE),
        (6, Tier.REMOTE),
        (7, Tier.LOCAL),
        (9, Tier.LOCAL),
        (10, Tier.BLOCK),
        (14, Tier.BLOCK),
        (15, Tier.NONE),
    ],
)
def test_every_offset_has_one_tier(offset: int, expected: Tier) -> None:
    assert tier_of(replace(BLOCKS, remote_end=Offset(7)), Offset(offset)) is expected


def test_what_is_written_locally_is_read_locally() -> None:
    grown = replace(ADOPTED, high_watermark=Offset(12))
    assert [tier_of(grown, Offset(offset)) for offset in (9, 10, 11, 12)] == [
        Tier.REMOTE,
        Tier.LOCAL,
        Tier.LOCAL,
        Tier.NONE,
    ]
