import asyncio
import json
import struct
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden_topic import ADDED, metadata_values, write_dump
from tests.unit.segment.layout_golden import TOPIC
from typer.testing import CliRunner, Result

from stratalog.cli.adoption_sources import parse_starts
from stratalog.cli.errors import BadOptionError, DumpError
from stratalog.cli.foreign_cluster import ForeignCluster, parse_client_uuid
from stratalog.cli.main import app
from stratalog.cli.metadata_dump import dump_line, read_dump
from stratalog.cli.record_json import record_from_json
from stratalog.cli.segments_import import open_foreign
from stratalog.control.open import open_control_plane
from stratalog.control.topics.model import ADOPTED_OFFSETS_END
from stratalog.errors import CallError
from stratalog.ids import PartitionIndex, kafka_base64
from stratalog.settings import Settings, StorageSettings

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
COMMANDS = [
    "segments import",
    "segments export",
    "segments list",
    "segments find",
    "segments own",
    "topic migrate",
    "topic describe",
]
VALUES = metadata_values()


def invoke(*arguments: str) -> Result:
    return runner.invoke(app, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example_of_it(command: str) -> None:
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"stratalog {command}" in result.stdout.partition("Examples")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    result = invoke(*command.split(), "--help")
    for line in result.stdout.splitlines():
        if line.startswith("│ --"):
            assert line.rstrip("│ ").endswith((".", "]")), line


@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "t"],
        ["import", "t", "--kafka-objects", "file:x"],
        ["import", "t", "--kafka-objects", "file:x", "--dump", "d", "--kafka-bootstrap", "h:1"],
        [
            "import",
            "t",
            "--kafka-objects",
            "file:x",
            "--kafka-bootstrap",
            "h:1",
            "--partitions",
            "3",
        ],
        [
            "import",
            "t",
            "--kafka-objects",
            "file:x",
            "--kafka-bootstrap",
            "h:1",
            "--log-start",
            "0=3",
        ],
        ["import", "t", "--kafka-objects", "file:x", "--kafka-bootstrap", "h:1", "--topic-id", "x"],
        ["import", "t", "--kafka-objects", "file:x", "--kafka-bootstrap", "h:1", "--sealed"],
        ["import", "t", "--kafka-objects", "file:x", "--dump", "d", "--partitions", "0"],
        ["export", "t", "--output", "x", "--kafka-bootstrap", "h:1"],
        ["list"],
        ["list", "t", "--partition", "-1"],
        ["find", "t", "0"],
        ["find", "t", "0", "-1"],
        ["own"],
    ],
)
def test_wrong_usage_ends_with_exit_code_2(arguments: list[str]) -> None:
    assert invoke("segments", *arguments).exit_code == 2


def test_a_word_that_a_running_source_is_sealed_is_refused() -> None:
    where = ["--kafka-objects", "file:x", "--kafka-bootstrap", "h:1"]
    said = invoke("segments", "import", "t", *where, "--sealed").stderr
    assert "--sealed goes with --dump: a running cluster tells it" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["segments", "list", "t"],
        ["segments", "export", "t"],
        ["segments", "find", "t", "0", "5"],
        ["segments", "own", "t", "--yes"],
        ["segments", "import", "t", "--kafka-objects", "file:x", "--dump", "d", "--sealed"],
        ["topic", "migrate", "t"],
    ],
)
def test_no_control_plane_is_made_where_there_is_none(arguments: list[str], tmp_path: Path) -> None:
    result = invoke(*arguments, "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "there is no control plane at" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "confirm it with --sealed"),
        (["--sealed", "--log-start", "x=1"], "write it as 3=5000"),
        (["--sealed", "--topic-config", "x"], "name=value"),
    ],
)
def test_options_are_judged_before_anything_is_read(more: list[str], said: str) -> None:
    result = invoke("segments", "import", "t", "--kafka-objects", "file:x", "--dump", "none", *more)
    assert result.exit_code == 1
    assert said in result.stderr


def test_where_partitions_begin_is_told_one_by_one() -> None:
    assert parse_starts(["0=5", "12=0"]) == {0: 5, 12: 0}
    assert parse_starts(None) == {}
    for wrong in ("-1=5", "1=-5", "1=", "one=2"):
        with pytest.raises(CallError):
            parse_starts([wrong])


def test_a_start_that_no_partition_can_have_is_refused() -> None:
    assert parse_starts([f"9999={ADOPTED_OFFSETS_END}"]) == {9999: ADOPTED_OFFSETS_END}
    for offset in (str(ADOPTED_OFFSETS_END + 1), "99999999999999999999", "9" * 5_000):
        with pytest.raises(BadOptionError, match="no partition begins beyond 4611686018427387904"):
            parse_starts([f"7={offset}"])
    for partition in ("10000", "30000000", "9" * 5_000):
        with pytest.raises(BadOptionError, match="a topic has up to 10000 partitions"):
            parse_starts([f"{partition}=5"])


@pytest.mark.parametrize(
    ("spoken_of", "more", "said"),
    [
        (2**31 - 1, [], "names partition 2147483647 of topic1: a topic has up to 10000"),
        (10_000, [], "names partition 10000 of topic1: a topic has up to 10000"),
        (7, ["--partitions", "30000000"], "--partitions 30000000: a topic has up to 10000"),
    ],
)
def test_more_partitions_than_a_topic_has_are_refused_before_they_are_made(
    tmp_path: Path, spoken_of: int, more: list[str], said: str
) -> None:
    asyncio.run(make_control_plane(f"sqlite:{tmp_path / 'control.db'}"))
    where = ADDED.partition._replace(partition=PartitionIndex(spoken_of))
    dump = write_dump(tmp_path / "dump", metadata_values(replace(ADDED, partition=where)))
    arguments = ["--dump", str(dump), "--data", str(tmp_path), "--sealed", *more]
    result = invoke("segments", "import", TOPIC, "--kafka-objects", f"file:{tmp_path}", *arguments)
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadOptionError, match="no such folder"):
        open_foreign(Settings(), f"file:{tmp_path / 'typo'}")
    assert not (tmp_path / "typo").exists()


async def test_options_of_the_main_store_hold_for_stores_of_its_kind_alone(
    tmp_path: Path,
) -> None:
    storage = StorageSettings(objects="s3://own", object_options={"region": "eu-central-1"})
    for url in (f"file:{tmp_path}", "s3://other/tiered"):
        store = open_foreign(Settings(storage=storage), url)
        assert store.url.startswith(url.partition(":")[0])
        await store.close()


def test_an_option_that_no_client_knows_is_told() -> None:
    with pytest.raises(CallError, match=r"sasl\.pasword"):
        ForeignCluster("127.0.0.1:1", {"sasl.pasword": "x"})


# Dumps.


def test_a_dump_in_json_is_read(tmp_path: Path) -> None:
    assert read_dump(write_dump(tmp_path / "dump", VALUES)) == VALUES


def test_a_dump_as_export_writes_it_is_read(tmp_path: Path) -> None:
    lines = [dump_line(33, value) for value in VALUES]
    (tmp_path / "dump").write_text("\n" + "\n".join(lines))
    assert read_dump(tmp_path / "dump") == VALUES
    # `produce --json` reads the same line.
    record = record_from_json(lines[0].encode(), number=1)
    assert (record.partition, record.key, record.value) == (33, None, VALUES[0])


def test_a_dump_with_lengths_is_read(tmp_path: Path) -> None:
    framed = b"".join(struct.pack(">i", len(value)) + value for value in VALUES)
    (tmp_path / "dump").write_bytes(framed + struct.pack(">i", -1) + struct.pack(">i", 0))
    assert read_dump(tmp_path / "dump") == [*VALUES, None, b""]


@pytest.mark.parametrize("cut", [1, 3, 5, 100])
def test_a_dump_that_is_cut_off_is_told(tmp_path: Path, cut: int) -> None:
    framed = struct.pack(">i", len(VALUES[0])) + VALUES[0]
    (tmp_path / "dump").write_bytes(framed[:cut])
    with pytest.raises(DumpError, match="dump: no complete record at byte"):
        read_dump(tmp_path / "dump")


def test_a_line_that_is_no_record_is_told_by_its_number(tmp_path: Path) -> None:
    good = json.dumps({"value_base64": b64encode(VALUES[0]).decode()})
    (tmp_path / "dump").write_text(good + "\n{}x\n")
    with pytest.raises(DumpError, match="line 2"):
        read_dump(tmp_path / "dump")


async def make_control_plane(url: str) -> None:
    await (await open_control_plane(url)).close()


def test_a_dump_that_is_not_there_is_told(tmp_path: Path) -> None:
    asyncio.run(make_control_plane(f"sqlite:{tmp_path / 'control.db'}"))
    arguments = ["--dump", str(tmp_path / "none"), "--data", str(tmp_path), "--sealed"]
    result = invoke("segments", "import", TOPIC, "--kafka-objects", "file:x", *arguments)
    assert result.exit_code == 1
    assert str(tmp_path / "none") in result.stderr


@pytest.mark.parametrize(
    "text", ["4AcsIHzNT0i6U+v2aAK69g", "4AcsIHzNT0i6U-v2aAK69g", "lZ6vvmajTWKDBUTV6SQAtQ"]
)
def test_an_id_is_understood_in_either_alphabet_of_base_64(text: str) -> None:
    found = parse_client_uuid(text)
    assert found is not None
    assert kafka_base64(found) == text.replace("+", "-")
