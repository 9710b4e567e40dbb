"""From options and conditions to the request that a planner gets."""

import asyncio
import re
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.control.open import open_control_plane
from stratalog.control.scan_model import EARLIEST, LATEST
from stratalog.ids import Offset, PartitionIndex
from stratalog.scan.errors import TopicNotFoundError
from stratalog.scan.model import Positions, RowFilter, ScanColumn, ScanRequest
from stratalog.spark.errors import OptionError
from stratalog.spark.filters import Wanted
from stratalog.spark.options import batch_options
from stratalog.spark.planning import plan, scan_request
from stratalog.spark.telling import ToldPlainly

COLUMNS = (ScanColumn.KEY,)


def request(wanted: Wanted | None = None, /, **options: str) -> ScanRequest | None:
    return scan_request(batch_options(options), COLUMNS, wanted)


def test_all_that_was_asked_for_is_in_the_request() -> None:
    assert request(
        topic="a",
        minPartitions="3",
        splitBytes="9",
        leaseMs="8",
        failOnDataLoss="false",
        **{"kafka.isolation.level": "read_uncommitted"},
    ) == ScanRequest(
        topics=("a",),
        columns=COLUMNS,
        min_splits=3,
        split_bytes=9,
        lease_ms=8,
        fail_on_data_loss=False,
        committed=False,
        holder="spark",
    )


def test_conditions_on_topics_narrow_every_way_to_select_them() -> None:
    wanted = Wanted(topics=frozenset({"a", "c"}))
    some = request(wanted, subscribe="a,b")
    assert some is not None
    assert list(some.topics) == ["a"]
    some = request(wanted, assign='{"a": [1], "b": [2]}')
    assert some is not None
    assert some.assign == {"a": [PartitionIndex(1)]}
    assert request(wanted, topic="b") is None
    assert request(wanted, assign='{"b": [2]}') is None


@pytest.mark.parametrize(
    ("pattern", "matched"), [("[ab]", {"a"}), ("a|a.c", {"a", "a.c"}), ("x|.*c", {"a.c"})]
)
def test_conditions_on_topics_narrow_a_pattern(pattern: str, matched: set[str]) -> None:
    some = request(Wanted(topics=frozenset({"a", "a.c"})), subscribePattern=pattern)
    assert some is not None
    names = ["a", "b", "a.c", "abc", "aa", "c"]
    assert {name for name in names if re.fullmatch(some.pattern or "", name)} == matched


def test_positions_of_topics_that_conditions_leave_out_go_too() -> None:
    offsets = '{"a": {"0": 5}, "b": {"0": 6}}'
    some = request(Wanted(topics=frozenset({"b"})), subscribe="a,b", startingOffsets=offsets)
    assert some is not None
    assert some.starting == Positions(default=EARLIEST, by_partition={("b", 0): Offset(6)})
    assert some.ending == Positions(default=LATEST)


def test_conditions_that_leave_nothing_make_no_request() -> None:
    assert request(Wanted(rows=RowFilter(partitions=frozenset())), topic="a") is None
    rows = RowFilter(first_offset=5, end_offset=6)
    assert request(Wanted(rows=rows), topic="a") is not None
    assert request(Wanted(rows=replace(rows, end_offset=5)), topic="a") is None


def test_our_errors_leave_their_insides_behind() -> None:
    def fail() -> None:
        try:
            raise ValueError("a secret")
        except ValueError as error:
            raise OptionError("say it so") from error

    def guarded() -> None:
        with ToldPlainly():
            fail()

    with pytest.raises(OptionError) as caught:
        guarded()
    told = "".join(traceback.format_exception(caught.value))
    assert told.endswith("OptionError: say it so\n")
    assert "secret" not in told
    assert "in fail" not in told


def test_other_errors_are_left_as_they_are() -> None:
    def guarded() -> None:
        with ToldPlainly():
            raise KeyError("x") from ValueError("the cause")

    with pytest.raises(KeyError) as caught:
        guarded()
    assert isinstance(caught.value.__cause__, ValueError)


async def make_control_plane(url: str) -> None:
    await (await open_control_plane(url)).close()


def test_a_topic_that_is_missed_without_settings_tells_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATALOG_CONFIG", raising=False)
    asyncio.run(make_control_plane("sqlite:stratalog-data/control.db"))
    wanted = request(topic="a")
    assert wanted is not None
    missed = r"there is no topic 'a' in sqlite:stratalog-data/control.db"
    with pytest.raises(TopicNotFoundError, match=rf"^{missed}; no settings file .* \"config\"$"):
        plan(batch_options({"topic": "a"}), wanted)
    (tmp_path / "stratalog.toml").write_text("")
    with pytest.raises(TopicNotFoundError, match=rf"^{missed}$"):
        plan(batch_options({"topic": "a"}), wanted)
