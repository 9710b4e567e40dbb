"""Adopted objects afterwards: their owner, their listing, their way back to Kafka."""

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tests.integration.adoption.adopting_cluster import AdoptingCluster, import_arguments, read_all
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import Message
from tests.support.golden_topic import (
    END,
    FIRST,
    GOLDEN_RECORDS,
    PARTITION,
    metadata_values,
)
from tests.unit.segment.layout_golden import (
    KEY_BASE,
    TOPIC,
    TOPIC_ID,
)

from stratalog.clock import SystemClock
from stratalog.control.plane import ControlPlane
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.janitor.deletion import purge_topics
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.objects.open import open_store
from stratalog.segment.keys import SUFFIXES
from stratalog.segment.remote_log_metadata import (
    decode_record,
    encode_record,
    metadata_partition,
)
from stratalog.segment.stores import SegmentStores


def objects_left(tiered: Path) -> list[bool]:
    return [(tiered / (KEY_BASE + suffix)).exists() for suffix in SUFFIXES]


def delete_topic_for_good(place: AdoptingCluster) -> None:
    """Delete the topic, and do the janitor's later work."""
    place.wire("topic", "delete", TOPIC, "--yes")

    async def clean(control: ControlPlane) -> None:
        await purge_topics(control, window_ms=0, chunk_rows=100)
        own = open_store(place.settings.storage.objects, {}, clock=SystemClock())
        stores = SegmentStores(own, lambda url: open_store(url, {}, clock=SystemClock()))
        await delete_doomed(control.segments, stores, grace_ms=0, chunk_rows=100)
        await stores.close()
        await own.close()

    place.run(clean)


def test_adopted_objects_outlive_the_topic(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    delete_topic_for_good(place)
    assert objects_left(tiered) == [True] * 3
    # And can be adopted again, because nothing of them is remembered.
    place(*import_arguments(dump, tiered))
    assert read_all(ConfluentClient(), place.bootstrap) == GOLDEN_RECORDS


def test_objects_whose_ownership_was_taken_go_with_the_topic(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    assert place.try_("segments", "own", TOPIC, answer="n\n").exit_code == 1
    [before] = json.loads(place("segments", "list", TOPIC, "--json"))
    assert place.try_("segments", "own", TOPIC, answer="y\n").exit_code == 0
    [after] = json.loads(place("segments", "list", TOPIC, "--json"))
    assert (before["owned"], after["owned"]) == (False, True)
    assert "Took ownership of 0 segments" in place("segments", "own", TOPIC, "--yes")
    delete_topic_for_good(place)
    assert objects_left(tiered) == [False] * 3


# The way back to Kafka.


def test_what_was_imported_is_exported_byte_by_byte(
    place: AdoptingCluster, dump: Path, tiered: Path, tmp_path: Path
) -> None:
    place(*import_arguments(dump, tiered))
    place("segments", "export", TOPIC, "--output", str(tmp_path / "out.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(PARTITION)))
    assert [record["partition"] for record in records] == [expected] * 2
    exported = [b64decode(record["value_base64"]) for record in records]
    # Everything but the times of both events, which are this cluster's.
    times = [decode_record(value) for value in metadata_values()]
    assert [
        encode_record(replace(decode_record(value), event_ms=then.event_ms))
        for value, then in zip(exported, times, strict=True)
    ] == metadata_values()
    printed = place("segments", "export", TOPIC)
    assert printed == (tmp_path / "out.jsonl").read_text()


def test_an_export_is_marked_and_says_what_to_set_in_kafka(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    said = place.try_("segments", "export", TOPIC).stderr
    for config in ("remote.log.copy.disable=true", "retention.ms=-1", "retention.bytes=-1"):
        assert config in said
    assert place.run(lambda control: control.segments.shared_topics([TOPIC_ID])) == {TOPIC_ID}


def test_an_offset_is_found_in_its_tier(place: AdoptingCluster, dump: Path, tiered: Path) -> None:
    place(*import_arguments(dump, tiered))
    ConfluentClient().write(place.bootstrap, TOPIC, [Message(b"new")], partition=PARTITION)

    def found(offset: int) -> dict[str, Any]:
        shown = place("segments", "find", TOPIC, str(PARTITION), str(offset), "--json")
        return cast(dict[str, Any], json.loads(shown))

    for offset in (FIRST, END - 1):
        remote = found(offset)
        assert (remote["tier"], remote["first"], remote["last"]) == ("remote", FIRST, END - 1)
        assert (remote["store"], remote["object"]) == (f"file://{tiered}", f"{KEY_BASE}.log")
    block = found(END)
    assert (block["tier"], block["first"], block["last"]) == ("block", END, END)
    assert block["object"].startswith("blocks/")
    assert block["leader_epoch"] > remote["leader_epoch"]
    for offset in (FIRST - 1, END + 1):
        assert found(offset) == {"tier": "none", "log_start": FIRST, "high_watermark": END + 1}
    assert "tier: remote" in place("segments", "find", TOPIC, str(PARTITION), str(FIRST))
    assert "only 0 to 7" in place.try_("segments", "find", TOPIC, "8", "0").stderr


def test_segments_are_listed_with_their_place(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    [shown] = json.loads(place("segments", "list", TOPIC, "--partition", "7", "--json"))
    assert (shown["first"], shown["last"], shown["bytes"]) == (FIRST, END - 1, 756_200)
    assert (shown["state"], shown["owned"]) == ("copy-finished", False)
    assert (shown["store"], shown["key"]) == (f"file://{tiered}", KEY_BASE)
    assert json.loads(place("segments", "list", TOPIC, "--all", "--json")) == [shown]
    assert json.loads(place("segments", "list", TOPIC, "--partition", "0", "--json")) == []
    assert KEY_BASE in place("segments", "list", TOPIC)
    result = place.try_("segments", "list", TOPIC, "--partition", "8")
    assert "only 0 to 7" in result.stderr
