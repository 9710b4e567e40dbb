"""Adopting a topic of Kafka: the plugin's own objects, the command, and real clients afterwards."""

import json
from pathlib import Path

from kio.schema.errors import ErrorCode
from tests.integration.adoption.adopting_cluster import (
    AdoptingCluster,
    described,
    import_arguments,
    partitions,
    read_all,
    running,
)
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import Message
from tests.support.golden_topic import (
    END,
    FIRST,
    GOLDEN_RECORDS,
    PARTITION,
    lay_out,
)
from tests.support.wire import connected
from tests.unit.segment.layout_golden import (
    PLAIN,
    TOPIC,
    TOPIC_ID,
)

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record


def test_what_a_dump_does_not_tell_can_be_told(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    told = ["--partitions", "12", "--log-start", "7=6001", "--log-start", "9=77"]
    place(*import_arguments(dump, tiered, *told, "--topic-config", "retention.ms=-1"))
    found = partitions(place)
    assert [one["log_start"] for one in found] == [*[0] * 7, 6001, 0, 77, 0, 0]
    [first] = ConfluentClient().read(
        place.bootstrap, TOPIC, count=1, partition=PARTITION, start=6001
    )
    assert (first.offset, first.value) == (6001, GOLDEN_RECORDS[1001][3])
    with connected(place.bootstrap) as wire:
        assert wire.fetch(TOPIC, PARTITION, 6000)[0] is ErrorCode.offset_out_of_range


def test_too_few_partitions_are_refused(place: AdoptingCluster, dump: Path, tiered: Path) -> None:
    result = place.try_(*import_arguments(dump, tiered, "--partitions", "7"))
    assert result.exit_code == 1
    assert "names partition 7 of topic1" in result.stderr


def test_tiers_are_not_shown_of_another_cluster(place: AdoptingCluster, tmp_path: Path) -> None:
    with running(tmp_path / "other") as other:
        place.wire("topic", "create", "t")
        result = other.try_("topic", "describe", "t", "--bootstrap", place.bootstrap)
    assert result.exit_code == 1
    assert "name the right broker with --bootstrap" in result.stderr


# An import in steps.


def test_a_topic_that_is_read_only_is_opened_for_writes_later(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    said = place(*import_arguments(dump, tiered, "--read-only"))
    assert "`stratalog topic migrate topic1` opens it for writes" in said
    assert described(place)["state"] == "tiered-only"
    assert read_all(ConfluentClient(), place.bootstrap) == GOLDEN_RECORDS
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=b"x")])
    with connected(place.bootstrap) as wire:
        refused = wire.produce(TOPIC, batch, partition=PARTITION)
        assert refused.error_code is not ErrorCode.none
    again = place.try_(*import_arguments(dump, tiered))
    assert again.exit_code == 1
    assert "was adopted already, and can be read but not written" in again.stderr
    assert "stratalog topic migrate topic1" in again.stderr
    assert "takes writes: new records" in place("topic", "migrate", TOPIC)
    assert "takes writes already" in place("topic", "migrate", TOPIC)
    assert described(place)["state"] == "hybrid"
    assert ConfluentClient().write(
        place.bootstrap, TOPIC, [Message(b"x")], partition=PARTITION
    ) == [END]
    assert place.try_("topic", "migrate", TOPIC, "--abort").exit_code == 1
    assert (
        "takes writes: nothing is left to do" in place.try_(*import_arguments(dump, tiered)).stderr
    )


def test_an_import_that_was_cut_off_says_how_to_go_on(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered, "--read-only"))
    place.run(lambda control: control.topics.begin_migration(TOPIC_ID))
    result = place.try_(*import_arguments(dump, tiered))
    assert "its migration has begun: finish it with `stratalog topic migrate" in result.stderr
    assert described(place)["state"] == "migrating"
    place("topic", "migrate", TOPIC, "--abort")
    assert described(place)["state"] == "tiered-only"
    place.run(lambda control: control.topics.begin_migration(TOPIC_ID))
    place("topic", "migrate", TOPIC)
    assert described(place)["state"] == "hybrid"


def test_a_dry_run_shows_everything_and_changes_nothing(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered, "--dry-run")
    shown = json.loads(place(*arguments, "--json"))
    assert shown["adopted"] is False
    assert shown["partitions"][PARTITION] == {
        "partition": PARTITION,
        "segments": 1,
        "bytes": 756_200,
        "stored_bytes": 756_200 + 2_593 + 762,
        "log_start": FIRST,
        "end": END,
        "leader_epoch": 3,
        "producers": 2,
        "lost_records": 0,
    }
    said = place(*arguments)
    assert "Would adopt topic1" in said
    assert "would be refused" in said, "a transaction is open"
    assert TOPIC not in place.wire("topic", "list")


# Refusals.


def test_open_transactions_are_refused_with_their_producers(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered)
    arguments.remove("--accept-open-transactions")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "partition 7: 4000." in result.stderr
    assert "4001" not in result.stderr


def test_a_start_behind_the_last_tiered_offset_is_refused(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered, "--log-start", "7=50000")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert f"tiered is {END - 1}. Correct --log-start" in " ".join(result.stderr.split())
    shown = json.loads(place(*arguments, "--lose-untiered", "--json"))
    assert shown["partitions"][PARTITION]["lost_records"] == 50_000 - END
    assert described(place)["high_watermark"] == 50_000


def test_a_dump_needs_the_word_that_its_topic_is_sealed(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered)
    arguments.remove("--sealed")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "--sealed" in result.stderr


def test_a_name_that_is_taken_is_refused(place: AdoptingCluster, dump: Path, tiered: Path) -> None:
    place.run(lambda control: control.topics.create(TOPIC, partition_count=1, configs={}))
    result = place.try_(*import_arguments(dump, tiered))
    assert result.exit_code == 1
    assert "another topic called topic1" in result.stderr


def test_objects_where_the_cluster_sweeps_are_refused(place: AdoptingCluster, dump: Path) -> None:
    own = place.folder / "objects"
    lay_out(own, PLAIN, prefix="segments/")
    arguments = [
        *("segments", "import", TOPIC, "--dump", str(dump), "--sealed"),
        *("--kafka-objects", f"file:{own}", "--key-prefix", "segments/"),
    ]
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "where this cluster deletes" in result.stderr
