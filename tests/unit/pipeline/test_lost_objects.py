"""A lost object that is given up as a whole: all ranges of all topics, and crashes on the way."""

import asyncio
from unittest.mock import patch

import pytest
from tests.unit.pipeline.lab import Lab, path_of, spoil
from tests.unit.pipeline.losses import mark, plan, problems
from typer.testing import CliRunner

from stratalog.admin.errors import StillReadableError
from stratalog.admin.lost_ranges import LostRangeAdmin
from stratalog.admin.principal import ANONYMOUS
from stratalog.checks.errors import LostRangeError
from stratalog.checks.lost_objects import LostPart
from stratalog.cli.admin import admin_of
from stratalog.cli.main import app
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.lost.ledger import LostRangesLedger
from stratalog.control.topics.model import Topic
from stratalog.control.writers.model import WriterKind


def admin(lab: Lab) -> LostRangeAdmin:
    return admin_of(lab.control, lab.settings).lost_ranges


async def mark_all(lab: Lab, parts: list[LostPart], *, force: bool = False) -> None:
    await admin(lab).mark_parts(ANONYMOUS, lab.store, parts, reason="gone", force=force)
    note_lost(lab, parts)


def note_lost(lab: Lab, parts: list[LostPart]) -> None:
    for _, found in parts:
        lab.lost[found.partition] |= set(range(found.first_offset, found.end_offset))


async def two_topics(lab: Lab) -> tuple[Topic, Topic, str]:
    """Two topics with three blocks; return the key of the one in the middle."""
    orders, parcels = await lab.topic(partitions=2), await lab.topic(partitions=1, name="parcels")
    wanted = [(orders, {0: [3, 1], 1: [2]}), (parcels, {0: [1]})]
    blocks = [await lab.write_both(wanted) for _ in range(3)]
    return orders, parcels, blocks[1].commit.key


async def test_all_ranges_of_a_lost_object_are_marked_in_all_topics(lab: Lab) -> None:
    orders, parcels, key = await two_topics(lab)
    path_of(lab, key).unlink()
    parts = await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    assert {
        (topic, found.partition.partition, found.first_offset, found.end_offset)
        for topic, found in parts
    } == {("orders", 0, 4, 8), ("orders", 1, 2, 4), ("parcels", 0, 1, 2)}
    await mark_all(lab, parts)
    await lab.check(orders)
    await lab.check(parcels)
    assert await problems(lab) == []
    assert len(await lab.control.lost.of_topic(orders.id)) == 2
    with pytest.raises(LostRangeError, match="no records are served"):
        await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    assert (await lab.run()).commits
    await lab.check(orders)


async def test_an_object_that_can_be_read_is_given_up_by_force_only(lab: Lab) -> None:
    orders, parcels, key = await two_topics(lab)
    parts = await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    with pytest.raises(StillReadableError, match="--force"):
        await mark_all(lab, parts)
    assert await lab.control.lost.of_topic(orders.id) == []
    await mark_all(lab, parts, force=True)
    await lab.check(orders)
    await lab.check(parcels)
    assert await problems(lab) == []


async def test_nothing_is_marked_while_a_part_of_the_object_can_be_read(lab: Lab) -> None:
    topic = await lab.topic(partitions=2)
    damaged = await lab.write(topic, {0: [3], 1: [3]})
    spoil(lab, damaged, 0)
    parts = await admin(lab).plan_object(ANONYMOUS, lab.store, damaged.commit.key)
    with pytest.raises(StillReadableError, match="partition 1 of orders"):
        await mark_all(lab, parts)
    assert await lab.control.lost.of_topic(topic.id) == []


@pytest.mark.parametrize("key", ["blocks/x", "stratalog.json"])
async def test_other_objects_cannot_be_marked(lab: Lab, key: str) -> None:
    with pytest.raises(LostRangeError, match="not the key of"):
        await admin(lab).plan_object(ANONYMOUS, lab.store, key)


async def test_a_crash_between_upload_and_transaction_leaves_garbage_alone(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    blocks = [await lab.write(topic, {0: [3, 1]}) for _ in range(3)]
    path_of(lab, blocks[1].commit.key).unlink()
    found = await plan(lab, topic, 4, 8)
    rows = await lab.control.log.all_coordinates(found.partition, limit=100)
    before = await lab.keys()
    crash = patch.object(LostRangesLedger, "fill", side_effect=ControlUnavailableError("crash"))
    with crash, pytest.raises(ControlUnavailableError):
        await mark(lab, topic, found)
    assert await lab.control.log.all_coordinates(found.partition, limit=100) == rows
    assert await lab.control.lost.of_topic(topic.id) == []
    [orphan] = set(await lab.keys()) - set(before)
    await lab.clean()
    assert orphan not in await lab.keys()
    await mark(lab, topic, found)
    await lab.check(topic)
    assert await problems(lab) == []
    await lab.clean()
    await lab.check(topic)


async def test_an_object_is_marked_to_its_end_after_a_crash_between_two_ranges(lab: Lab) -> None:
    orders, parcels, key = await two_topics(lab)
    path_of(lab, key).unlink()
    parts = await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    await mark_all(lab, parts[:1])
    rest = await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    assert [each.plan.partition for each in rest] == [each.plan.partition for each in parts[1:]]
    await mark_all(lab, rest)
    await lab.check(orders)
    await lab.check(parcels)
    assert await problems(lab) == []


async def test_the_writer_of_the_replacement_is_announced_and_ended(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic, blocks=3)
    await mark(lab, topic, await plan(lab, topic, 4, 8), force=True)
    [writer] = [each for each in await lab.control.writers.all() if each.kind is WriterKind.REPAIR]
    assert writer.ended_ms is not None


async def test_the_command_shows_then_marks(lab: Lab) -> None:
    orders, parcels, key = await two_topics(lab)
    path_of(lab, key).unlink()
    parts = await admin(lab).plan_object(ANONYMOUS, lab.store, key)
    places = ("--objects", lab.settings.storage.objects, "--control", lab.settings.storage.control)
    command = ["store", "mark-lost", key, "--reason", "a test", *places]

    async def run(*more: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*command, *more])
        assert done.exit_code == 0, done.output
        return done.output

    shown = await run("--dry-run")
    assert "offsets 4 to 7: 1 row" in shown
    assert "not in the store" in shown
    assert await lab.control.lost.of_topic(orders.id) == []
    assert "Marked 7 offsets of 2 topics as lost." in await run("--yes")
    note_lost(lab, parts)
    await lab.check(orders)
    await lab.check(parcels)
