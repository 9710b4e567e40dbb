"""The commands against a real broker: in this process for the wire, as a process of its own for
`up`, whose signals and exit codes are part of its promises."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from stratalog.cli.bench import measure_consume, measure_produce
from stratalog.cli.bench_client import Load
from stratalog.cli.main import app
from stratalog.testing.broker import Broker

STOP_SECONDS = 30.0


class Cli:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._runner = CliRunner(env={"STRATALOG_BOOTSTRAP": bootstrap, "NO_COLOR": "1"})

    def try_(self, *arguments: str, stdin: bytes = b"") -> Result:
        return self._runner.invoke(app, arguments, input=stdin)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> str:
        result = self.try_(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic with two partitions for this test alone."""
    name = f"topic-{uuid4().hex[:8]}"
    cli("topic", "create", name, "--partitions", "2")
    return name


def test_a_created_topic_is_listed_with_its_partitions(cli: Cli, topic: str) -> None:
    listed = json.loads(cli("topic", "list", "--json"))
    assert {"topic": topic, "partitions": 2} in listed
    assert re.search(rf"^{topic} +2$", cli("topic", "list"), re.MULTILINE)


def test_describe_shows_offsets_leaders_and_what_was_configured(cli: Cli) -> None:
    name = f"topic-{uuid4().hex[:8]}"
    cli("topic", "create", name, "-p", "2", "--config", "retention.ms=86400000")
    cli("produce", name, "--partition", "1", stdin=b"a\nb\n")
    described = json.loads(cli("topic", "describe", name, "--json"))
    assert described["configs"] == {"retention.ms": "86400000"}
    offsets = [(each["earliest"], each["latest"]) for each in described["partitions"]]
    assert offsets == [(0, 0), (0, 2)]
    assert "retention.ms = 86400000" in cli("topic", "describe", name)


def test_describe_shows_the_bytes_of_each_partition(cli: Cli, topic: str) -> None:
    cli("produce", topic, "--partition", "1", "--codec", "none", stdin=b"x" * 1000 + b"\n")
    described = json.loads(cli("topic", "describe", topic, "--json"))
    empty, full = [partition["bytes"] for partition in described["partitions"]]
    assert empty == 0
    assert 1000 < full < 1200
    assert re.search(rf"^1 .* {full}$", cli("topic", "describe", topic), re.MULTILINE)


def test_a_topic_is_altered(cli: Cli, topic: str) -> None:
    changes = ["--set", "retention.ms=5", "--set", "segment.ms=6", "--partitions", "3"]
    assert cli("topic", "alter", topic, *changes) == f"Altered topic {topic}.\n"
    cli("topic", "alter", topic, "--unset", "segment.ms")
    described = json.loads(cli("topic", "describe", topic, "--json"))
    assert described["configs"] == {"retention.ms": "5"}
    assert len(described["partitions"]) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "nothing to alter"),
        (["--set", "retention.ms"], "name=value"),
        (["--set", "retention.ms=soon"], "retention.ms"),
        (["--set", "cleanup.policy=compact"], "compacted topics are not supported yet"),
        (["--set", "retention.msec=5"], "did you mean retention.ms?"),
        (["--partitions", "2"], "2 partitions"),
    ],
)
def test_what_cannot_be_altered_is_told(
    cli: Cli, topic: str, changes: list[str], said: str
) -> None:
    result = cli.try_("topic", "alter", topic, *changes)
    assert result.exit_code == 1
    assert said in result.stderr


def test_creating_a_topic_twice_is_an_error_unless_allowed(cli: Cli, topic: str) -> None:
    again = cli.try_("topic", "create", topic)
    assert again.exit_code == 1
    assert topic in again.stderr
    assert "exists already" in cli("topic", "create", topic, "--if-not-exists")


def test_a_topic_is_deleted_only_when_confirmed(cli: Cli, topic: str) -> None:
    assert cli.try_("topic", "delete", topic, stdin=b"n\n").exit_code == 1
    assert topic in cli("topic", "list")
    cli("topic", "delete", topic, "--yes")
    assert topic not in cli("topic", "list")


def test_an_unknown_topic_is_told_with_the_nearest_name(cli: Cli, topic: str) -> None:
    for command in (["consume"], ["topic", "describe"], ["topic", "delete", "--yes"]):
        result = cli.try_(*command, f"{topic}x")
        assert result.exit_code == 1
        assert f'did you mean "{topic}"?' in result.stderr
    assert f"{topic}x" not in cli("topic", "list"), "asking must not create it"


def test_lines_come_back_as_the_bytes_that_went_in(cli: Cli, topic: str) -> None:
    lines = b"hello\n\n\xff\xfe\ttab\r\nlast"
    summary = cli("produce", topic, "-p", "0", stdin=lines)
    assert summary == f"4 records to {topic}: partition 0 at 0..3\n"
    assert cli.try_("consume", topic).stdout_bytes == lines + b"\n"


def test_keys_headers_and_times_are_printed_when_asked_for(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-K", ":", "-H", "a=1", "-H", "b=x=y", stdin=b"k:v:w\nno key\n")
    lines = sorted(cli("consume", topic, "--keys", "--headers").splitlines())
    assert lines == ["\ta=1,b=x=y\tno key", "k\ta=1,b=x=y\tv:w"]
    timed = cli("consume", topic, "--timestamps").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t", line) for line in timed)


def test_json_of_one_topic_makes_the_same_records_in_another(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    given = [
        {"key": "k", "value_base64": "//4=", "partition": 1, "timestamp": 1000, "headers": []},
        {"key": None, "value": None, "partition": 0, "timestamp": 2000, "headers": {"h": "ü"}},
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in given))
    cli("produce", topic, "--json", "--file", str(file), "--codec", "zstd")
    first = cli("consume", topic, "--json")
    other = f"{topic}-copy"
    cli("topic", "create", other, "-p", "2")
    cli("produce", other, "--json", stdin=first.encode())
    second = cli("consume", other, "--json")
    assert sorted(first.replace(topic, other).splitlines()) == sorted(second.splitlines())
    assert '"value_base64": "//4="' in first
    assert '"headers": [{"key": "h", "value": "ü"}]' in first


def test_a_bad_line_is_told_by_its_number_and_those_before_it_are_stored(
    cli: Cli, topic: str
) -> None:
    lines = b'{"value": "ok"}\n{"vaule": "x"}\n{"value": "late"}\n'
    result = cli.try_("produce", topic, "--json", stdin=lines)
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert cli("consume", topic) == "ok\n"


def test_reading_starts_where_it_is_told_to(cli: Cli, topic: str) -> None:
    # From 1000 on: librdkafka takes 0 for "no timestamp".
    records = [{"value": f"v{i}", "partition": 0, "timestamp": 1000 + 1000 * i} for i in range(10)]
    cli("produce", topic, "--json", stdin="\n".join(map(json.dumps, records)).encode())

    def values(*flags: str) -> list[str]:
        return cli("consume", topic, "-p", "0", *flags).split()

    everything = [f"v{i}" for i in range(10)]
    assert values() == values("--from-beginning") == everything
    assert values("--from-offset", "7") == everything[7:]
    assert values("--from-offset", "10") == []
    assert values("--from-offset", "-3") == everything[7:]
    assert values("--from-offset", "-99") == everything
    assert values("--from-time", "8500") == everything[8:]
    assert values("--from-time", "1970-01-01T00:00:08Z") == everything[7:]
    assert values("--from-time", "1m ago") == []
    assert values("--max", "4") == everything[:4]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-p", "0", "--from-offset", "1"], "begins at 0 and ends before 0"),
        (["-p", "2"], "no partition 2, only 0 to 1"),
    ],
)
def test_a_place_that_does_not_exist_is_told(
    cli: Cli, topic: str, flags: list[str], message: str
) -> None:
    result = cli.try_("consume", topic, *flags)
    assert result.exit_code == 1
    assert message in result.stderr


def test_following_starts_at_the_end_and_shows_what_comes(
    cli: Cli, topic: str, broker: Broker
) -> None:
    cli("produce", topic, stdin=b"old\n")
    command = [sys.executable, "-m", "stratalog.cli.main", "consume", topic, "--follow"]
    with subprocess.Popen(
        [*command, "-b", broker.bootstrap], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        # The reader has no way to say that it has found the end, so records come until one shows.
        while not select.select([reader.stdout], [], [], 0.2)[0]:
            cli("produce", topic, stdin=b"new\n")
        assert reader.stdout.readline() == "new\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(STOP_SECONDS) == 0


def test_a_record_that_the_broker_refuses_is_an_error(cli: Cli) -> None:
    name = f"topic-{uuid4().hex[:8]}"
    cli("topic", "create", name, "--config", "max.message.bytes=100")
    result = cli.try_("produce", name, stdin=b"x" * 1000 + b"\n")
    assert result.exit_code == 1
    assert "1 of 1 records were not stored" in result.stderr


def test_an_absent_broker_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.cli.client.CONNECT_SECONDS", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: connections are refused.
        absent = f"127.0.0.1:{taken.getsockname()[1]}"
        result = Cli(absent).try_("topic", "list")
    assert result.exit_code == 1
    assert f"no Kafka broker answers at {absent}" in result.stderr
    assert "stratalog up" in result.stderr


def test_the_bench_measures_broker_and_mock_alike(broker: Broker) -> None:
    for bootstrap in (broker.bootstrap, None):
        load = Load(bootstrap=bootstrap, topic="measured", records=2000, record_bytes=100)
        assert measure_produce(load).mb_per_second > 0
        assert measure_consume(load).mb_per_second > 0


@contextmanager
def running_up(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`stratalog up` on a free port, and the address that it prints."""
    command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRATALOG_")}
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if found := re.search(r"Stratalog is up on (\S+), broker \d+", line):
                    break
            assert found, said
            yield process, found[1]
        finally:
            if process.poll() is None:
                process.kill()


def test_up_has_everything_that_was_acknowledged_when_it_starts_again(tmp_path: Path) -> None:
    with running_up("--data", "kept", cwd=tmp_path) as (process, address):
        Cli(address)("produce", "greetings", stdin=b"hello\n")
        process.kill()
    # On the same port, as a supervisor would do it.
    with running_up("--data", "kept", "--listen", address, cwd=tmp_path) as (process, address):
        assert Cli(address)("consume", "greetings") == "hello\n"
        _stop(process, signal.SIGINT)


def _stop(process: subprocess.Popen[str], number: signal.Signals) -> str:
    process.send_signal(number)
    # Not `communicate`, which would miss the lines that were read ahead with the first one.
    assert process.stdout is not None
    output = process.stdout.read()
    assert process.wait(STOP_SECONDS) == 0, output
    assert output.rstrip().endswith("Stopped.")
    return output


def test_a_second_signal_ends_up_at_once() -> None:
    program = """
import asyncio, os, signal
from stratalog.cli.up import stop_on_signals

async def main():
    stop = asyncio.Event()
    stop_on_signals(stop)
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=STOP_SECONDS)
    assert done.returncode == 1


def test_up_on_a_taken_port_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    result = cli.try_("up", "--listen", cli.bootstrap, "--data", str(tmp_path))
    assert result.exit_code == 1
    assert f"{cli.bootstrap} is taken" in result.stderr
    assert "--listen" in result.stderr


@dataclass(frozen=True)
class Run:
    """The data of a broker that has run."""

    folder: Path
    address: str
    output: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    with running_up("--data", "here", "--partitions", "3", cwd=folder) as (process, address):
        Cli(address)("produce", "greetings", "-p", "2", "-K", ":", stdin=b"k:hello\nk:\xff\n")
        output = _stop(process, signal.SIGTERM)
    return Run(folder, address, output)


@pytest.fixture
def store(run: Run) -> Path:
    return run.folder / "here"


def test_up_tells_what_to_type_next_and_where_the_data_is(run: Run) -> None:
    assert f"stratalog produce greetings -b {run.address}\n" in run.output
    assert f"bootstrap.servers={run.address}" in run.output
    assert "file:here/objects" in run.output


def _block(store: Path) -> Path:
    (block,) = (path for path in (store / "objects" / "blocks").rglob("*") if path.is_file())
    return block


def test_inspect_shows_a_block_without_any_database(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(_block(store).read_bytes())
    cli = Cli("unused:1")
    shown = cli("inspect", str(copy), "--records")
    assert re.search(r"^greetings +2 +1 +2 ", shown, re.MULTILINE)
    assert re.search(r" k +hello$", shown, re.MULTILINE)
    assert re.search(r" k +\\xff$", shown, re.MULTILINE)
    told = json.loads(cli("inspect", str(_block(store)), "--records", "--json"))
    assert told["ok"]
    assert told["batches"][0]["records"][0]["value"] == "hello"


def test_inspect_shows_all_objects_that_a_pattern_of_the_shell_finds(
    store: Path, tmp_path: Path
) -> None:
    block = _block(store).read_bytes()
    for name in ("first", "last"):
        (tmp_path / name).write_bytes(block)
    (tmp_path / "middle").write_bytes(block[:70] + bytes([block[70] ^ 1]) + block[71:])
    names = [str(tmp_path / name) for name in ("first", "middle", "last")]
    result = Cli("unused:1").try_("inspect", *names)
    assert result.exit_code == 1
    assert re.findall(r"^(\w+), .* bytes$", result.stdout, re.MULTILINE) == [
        "first",
        "middle",
        "last",
    ]
    told = Cli("unused:1").try_("inspect", "--json", *names)
    assert [json.loads(line)["ok"] for line in told.stdout.splitlines()] == [True, False, True]


def test_inspect_of_a_damaged_block_shows_what_it_can_and_fails(
    store: Path, tmp_path: Path
) -> None:
    damaged = bytearray(_block(store).read_bytes())
    damaged[70] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    result = Cli("unused:1").try_("inspect", str(tmp_path / "damaged"))
    assert result.exit_code == 1
    assert "bad" in result.stdout
    assert "damaged: the batch at byte 0" in result.stderr


def test_fsck_finds_a_good_store_good(store: Path) -> None:
    cli = Cli("unused:1")
    assert "found" not in cli("fsck", "--data", str(store), "--deep")
    report = json.loads(cli("fsck", "--data", str(store), "--deep", "--json"))
    assert report["ok"]
    assert report["counts"]["batches"] == 1


def test_fsck_fails_when_an_object_is_gone(store: Path) -> None:
    block = _block(store)
    data = block.read_bytes()
    block.unlink()
    try:
        result = Cli("unused:1").try_("fsck", "--data", str(store))
    finally:
        block.write_bytes(data)
    assert result.exit_code == 1
    assert "not in the store" in result.stdout
