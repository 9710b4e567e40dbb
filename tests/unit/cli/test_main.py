import errno
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.cli import topic
from stratalog.cli.errors import NoSuchFileError, PortTakenError
from stratalog.cli.inspect import split_place
from stratalog.cli.main import app
from stratalog.cli.options import settings_from
from stratalog.cli.up import explain, without_password

COMMANDS = [
    "up",
    "topic create",
    "topic list",
    "topic describe",
    "topic delete",
    "store claim",
    "store mark-lost",
    "control status",
    "control accept",
    "control rebuild",
    "backup create",
    "backup list",
    "backup verify",
    "backup restore",
    "produce",
    "consume",
    "inspect",
    "fsck",
    "bench",
]
runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example_of_it(command: str) -> None:
    result = runner.invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    _, found, examples = result.stdout.partition("Examples")
    assert found
    assert f"stratalog {command}" in examples


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    result = runner.invoke(app, [*command.split(), "--help"])
    for line in result.stdout.splitlines():
        if line.startswith("│ --"):
            # Behind the names, the type and the range stands a sentence.
            assert line.rstrip("│ ").endswith((".", "]")), line


def test_the_version_is_printed_as_one_line() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("stratalog ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume"],
        ["no-such-command"],
        ["produce", "t", "--codec", "zip"],
        ["consume", "t", "--from-beginning", "--from-offset", "1"],
        ["consume", "t", "--max", "0"],
        ["bench", "--record-size", "1x"],
    ],
)
def test_wrong_usage_ends_with_exit_code_2(arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--set", "block.windw_ms=1"],
        ["up", "--config", "no-such-file.toml"],
        ["inspect", "no-such-file"],
        ["fsck", "--data", "no-such-folder"],
        ["produce", "t", "--header", "x"],
        ["consume", "t", "--from-time", "soon"],
        ["topic", "create", "t", "--config", "=x"],
    ],
)
def test_an_error_of_ours_is_one_line_on_stderr_and_exit_code_1(arguments: list[str]) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_debug_lets_the_error_through_with_its_traceback() -> None:
    result = runner.invoke(app, ["--debug", "inspect", "no-such-file"])
    assert isinstance(result.exception, NoSuchFileError)


def test_a_data_folder_holds_objects_and_control_plane_unless_told_otherwise() -> None:
    storage = settings_from(None, None, data=Path("d")).storage
    assert (storage.objects, storage.control) == ("file:d/objects", "sqlite:d/control.db")
    storage = settings_from(None, None, data=Path("d"), objects="memory:").storage
    assert (storage.objects, storage.control) == ("memory:", "sqlite:d/control.db")


def test_a_flag_of_its_own_beats_set() -> None:
    settings = settings_from(None, ["storage.objects=memory:"], objects="file:x")
    assert settings.storage.objects == "file:x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:data/control.db", "sqlite:data/control.db"),
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:secret@host/db?sslmode=require", "postgresql://me@host/db"),
        ("postgresql://me@host/db?password=secret", "postgresql://me@host/db"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
    ],
)
def test_addresses_are_shown_without_passwords(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_taken_port_is_explained_and_other_errors_are_left_as_they_are() -> None:
    taken = explain(OSError(errno.EADDRINUSE, "in use"), "127.0.0.1:9092")
    assert isinstance(taken, PortTakenError)
    assert "127.0.0.1:9092 is taken" in str(taken)
    other = OSError(errno.EACCES, "denied")
    assert explain(other, "127.0.0.1:80") is other


def test_an_object_in_a_bucket_is_split_where_our_keys_begin() -> None:
    assert split_place("s3://bucket/a/blocks/2025/01/x") == ("s3://bucket/a", "blocks/2025/01/x")
    assert split_place("s3://bucket/blocks/2025/01/x") == ("s3://bucket", "blocks/2025/01/x")
    assert split_place("gs://bucket/copy") == ("gs://bucket", "copy")


def test_a_file_is_split_where_our_keys_begin_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = tmp_path / "objects" / "blocks" / "2025" / "x"
    block.parent.mkdir(parents=True)
    block.write_bytes(b"")
    expected = (f"file:{tmp_path / 'objects'}", "blocks/2025/x")
    monkeypatch.chdir(tmp_path)
    for place in (f"{block}", f"file:{block}", f"file://{block}", "objects/blocks/2025/x"):
        assert split_place(place) == expected


def test_a_file_outside_of_any_store_is_read_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(b"")
    assert split_place(f"{tmp_path / 'copy'}") == (f"file:{tmp_path}", "copy")


def test_pairs_keep_what_follows_the_first_equals_sign() -> None:
    assert topic.parse_pairs(["a=b=c", "d="], "--config") == [("a", "b=c"), ("d", "")]
    assert topic.parse_pairs(None, "--config") == []
