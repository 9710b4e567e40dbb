"""From options and conditions to the request that a planner gets."""

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructType

from stratalog.control.errors import ControlUnavailableError, NoControlPlaneError
from stratalog.control.open import open_control_plane
from stratalog.scan.errors import TopicNotFoundError
from stratalog.scan.model import RowFilter, ScanColumn, ScanRequest
from stratalog.spark.errors import OptionError, SinkTopicError
from stratalog.spark.options import batch_options
from stratalog.spark.plain_errors import PlainErrors
from stratalog.spark.scan_calls import plan, release, scan_request
from stratalog.spark.sink import open_writer

COLUMNS = (ScanColumn.KEY,)


def request(**options: str) -> ScanRequest:
    return scan_request(batch_options(options), COLUMNS)


def test_all_that_was_asked_for_is_in_the_request() -> None:
    assert request(
        topic="a",
        where="offset < 5",
        minPartitions="3",
        splitBytes="9",
        leaseMs="8",
        failOnDataLoss="false",
        onUndecodable="skip",
        **{"kafka.isolation.level": "read_uncommitted"},
    ) == ScanRequest(
        topics=("a",),
        rows=RowFilter(end_offset=5),
        columns=COLUMNS,
        min_splits=3,
        split_bytes=9,
        lease_ms=8,
        fail_on_data_loss=False,
        skips_undecodable=True,
        committed=False,
        holder="spark",
    )


def test_our_errors_leave_their_insides_behind() -> None:
    def fail() -> None:
        try:
            raise ValueError("a secret")
        except ValueError as error:
            raise OptionError("say it so") from error

    def guarded() -> None:
        with PlainErrors():
            fail()

    with pytest.raises(OptionError) as caught:
        guarded()
    told = "".join(traceback.format_exception(caught.value))
    assert told.endswith("OptionError: say it so\n")
    assert "secret" not in told
    assert "in fail" not in told


def test_other_errors_are_left_as_they_are() -> None:
    def guarded() -> None:
        with PlainErrors():
            raise KeyError("x") from ValueError("the cause")

    with pytest.raises(KeyError) as caught:
        guarded()
    assert isinstance(caught.value.__cause__, ValueError)


async def make_control_plane(url: str) -> None:
    await (await open_control_plane(url)).close()


HINT = r"; no settings file was found: name it by \.option\(\"config\", .*\$STRATALOG_CONFIG$"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where there is no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATALOG_CONFIG", raising=False)
    return tmp_path


def read_from_topic() -> None:
    plan(batch_options({"topic": "a"}), request(topic="a"))


def write_to_topic() -> None:
    open_writer({"topic": "a"}, StructType().add("value", BinaryType()), overwrite=False)


@pytest.mark.parametrize("use", [read_from_topic, write_to_topic])
def test_a_topic_that_is_missed_without_settings_tells_of_them(
    nowhere: Path, use: Callable[[], None]
) -> None:
    asyncio.run(make_control_plane("sqlite:stratalog-data/control.db"))
    missed = r"there is no topic 'a' in sqlite:stratalog-data/control.db"
    with pytest.raises((TopicNotFoundError, SinkTopicError), match=rf"^{missed}.*{HINT}"):
        use()
    (nowhere / "stratalog.toml").write_text("")
    with pytest.raises((TopicNotFoundError, SinkTopicError), match=rf"^{missed}") as caught:
        use()
    assert "no settings file" not in str(caught.value)


@pytest.mark.parametrize("use", [read_from_topic, write_to_topic])
def test_a_control_plane_that_is_missed_without_settings_tells_of_them(
    nowhere: Path, use: Callable[[], None]
) -> None:
    missed = r"there is no control plane at stratalog-data/control.db"
    with pytest.raises(NoControlPlaneError, match=rf"^{missed}.*{HINT}"):
        use()
    (nowhere / "stratalog.toml").write_text("")
    with pytest.raises(NoControlPlaneError, match=rf"^{missed}") as caught:
        use()
    assert "no settings file" not in str(caught.value)
    assert [entry.name for entry in nowhere.iterdir()] == ["stratalog.toml"]


def test_old_leases_that_cannot_be_released_do_not_fail_a_plan(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare() -> None:
        control = await open_control_plane("sqlite:stratalog-data/control.db")
        await control.topics.create("a", partition_count=1, configs={})
        await control.close()

    async def fail(*_: object) -> None:
        raise ControlUnavailableError("away")

    asyncio.run(prepare())
    options, wanted = batch_options({"topic": "a"}), request(topic="a")
    old = plan(options, wanted).lease
    monkeypatch.setattr("stratalog.scan.planner.Scanner.release", fail)
    assert plan(options, wanted, read=[old]).lease.lease_id != old.lease_id
    release(options, [old])
