"""The checker finds each violation when it is planted in a history, and nothing in a good one."""

import io
import json
from dataclasses import replace

import pytest

from stratalog.testing.checker import CHECKS, Report, check, read_history, write_history
from stratalog.testing.checker.faults import DISASTERS, Kind, Target, plan
from stratalog.testing.checker.history import (
    Assign,
    Commit,
    Committed,
    Drained,
    Event,
    Note,
    OutOfRange,
    Place,
    Poll,
    Position,
    Promise,
    Rebalance,
    Record,
    Restored,
    Seek,
    Send,
    Stage,
    Subscribe,
    WentBack,
)
from stratalog.testing.checker.recorder import Recorder, Sending
from stratalog.testing.checker.report import MAX_FINDINGS
from stratalog.testing.errors import BadHistoryError

T = "t"


def sent(
    value: str,
    offset: int | None,
    *,
    stage: Stage = Stage.OK,
    client: str = "p",
    promise: Promise = Promise.IDEMPOTENT,
    unit: str | None = None,
    partition: int = 0,
) -> list[Event]:
    invoked = Send(
        client=client,
        stage=Stage.INVOKED,
        topic=T,
        partition=partition,
        value=value,
        promise=promise,
        unit=unit,
    )
    done = replace(invoked, stage=stage, offset=offset if stage is Stage.OK else None)
    return [invoked, done]


def stored(*values: str) -> list[Event]:
    """Sent and acknowledged at the offsets 0, 1, 2, and so on."""
    return [event for offset, value in enumerate(values) for event in sent(value, offset)]


def polled(*pairs: tuple[int, str], client: str = "c") -> Poll:
    return Poll(client=client, records=tuple(Record(T, 0, *pair) for pair in pairs))


def at(offset: int | None) -> Position:
    return Position(T, 0, offset)


def assigned(offset: int | None, client: str = "c") -> Assign:
    return Assign(client=client, positions=(at(offset),))


def committed(offset: int, stage: Stage = Stage.OK, client: str = "m") -> list[Event]:
    invoked = Commit(client=client, group="g", stage=Stage.INVOKED, position=at(offset))
    return [invoked, replace(invoked, stage=stage)]


def rebalanced(client: str = "m") -> Rebalance:
    return Rebalance(client=client, group="g", places=(Place(T, 0),))


ALL = polled((0, "a"), (1, "b"), (2, "c"), (3, "d"))
"""A poll that sees every write of `stored("a", "b", "c", "d")`."""

VIOLATIONS: dict[str, list[Event]] = {
    "lost-write": [*stored("a", "b", "c"), polled((0, "a")), assigned(2), polled((2, "c"))],
    "unseen": [*stored("a", "b"), polled((0, "a"))],
    "inconsistent-offsets": [
        *stored("a", "b"),
        polled((0, "a"), (1, "b")),
        assigned(None),
        *sent("x", None, stage=Stage.UNKNOWN),
        polled((1, "x")),
    ],
    "duplicate": [*stored("a"), polled((0, "a"), (1, "a"))],
    "phantom": [*stored("a"), polled((0, "a"), (1, "nobody's"))],
    "aborted-read": [*sent("a", None, stage=Stage.FAIL), polled((0, "a"))],
    "nonmonotonic-send": [*sent("a", 1), *sent("b", 0), polled((0, "b"), (1, "a"))],
    "int-nonmonotonic-send": [
        *sent("a", 1, promise=Promise.PLAIN, unit="u"),
        *sent("b", 0, promise=Promise.PLAIN, unit="u"),
        polled((0, "b"), (1, "a")),
    ],
    "poll-skip": [
        *stored("a", "b", "c", "d"),
        ALL,
        assigned(0),
        polled((0, "a")),
        polled((2, "c")),
    ],
    "int-poll-skip": [*stored("a", "b", "c", "d"), ALL, assigned(0), polled((0, "a"), (2, "c"))],
    "nonmonotonic-poll": [
        *stored("a", "b", "c", "d"),
        ALL,
        assigned(0),
        polled((0, "a"), (1, "b")),
        polled((1, "b")),
    ],
    "int-nonmonotonic-poll": [
        *stored("a", "b", "c", "d"),
        ALL,
        assigned(1),
        polled((1, "b"), (0, "a")),
    ],
    "out-of-range": [*stored("a"), polled((0, "a")), OutOfRange(client="c", position=at(1))],
    "gap": [*sent("a", 0), *sent("b", 2), polled((0, "a"), (2, "b"))],
    "committed-back": [*committed(5), *committed(4, client="n")],
}


def found(history: list[Event]) -> set[str]:
    return set(check(history).found)


def test_every_check_has_a_planted_violation() -> None:
    assert set(VIOLATIONS) == set(CHECKS)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_found_and_nothing_else(name: str) -> None:
    report = check(VIOLATIONS[name])
    assert set(report.found) == {name}
    assert not report.ok
    finding = report.findings[0]
    for place, event in finding.evidence:
        assert VIOLATIONS[name][place] == event
    assert finding.evidence
    assert json.loads(json.dumps(finding.as_dict()))["check"] == name


GOOD: dict[str, list[Event]] = {
    "nothing at all": [],
    "read to the end": [*stored("a", "b", "c", "d"), assigned(0), ALL],
    "in two polls": [*stored("a", "b"), assigned(0), polled((0, "a")), polled((1, "b"))],
    "two partitions that take turns": [
        *sent("a", 0),
        *sent("b", 1),
        *sent("x", 0, partition=1),
        Poll(
            client="c", records=(Record(T, 0, 0, "a"), Record(T, 1, 0, "x"), Record(T, 0, 1, "b"))
        ),
    ],
    "read before it is acknowledged": [
        sent("a", 0)[0],
        polled((0, "a")),
        sent("a", 0)[1],
    ],
    "put back": [*stored("a", "b"), polled((0, "a"), (1, "b")), assigned(0), polled((0, "a"))],
    "sought back": [
        *stored("a", "b"),
        polled((0, "a"), (1, "b")),
        Seek(client="c", position=at(1)),
        polled((1, "b")),
    ],
    "put forward, while others read what lies between": [
        *stored("a", "b", "c", "d"),
        ALL,
        assigned(0, "d"),
        polled((0, "a"), client="d"),
        assigned(3, "d"),
        polled((3, "d"), client="d"),
    ],
    "joined a group": [
        *stored("a", "b"),
        polled((0, "a"), (1, "b")),
        Subscribe(client="c", group="g", topics=(T,)),
        polled((0, "a")),
    ],
    "unknown and never seen": [*sent("a", None, stage=Stage.UNKNOWN)],
    "unknown and seen": [*sent("a", None, stage=Stage.UNKNOWN), polled((0, "a"))],
    "failed and never seen": [*sent("a", None, stage=Stage.FAIL)],
    "never heard of again": [*sent("a", 0)[:1], polled((0, "a"))],
    "acknowledged without an offset": [*sent("a", None), polled((0, "a"))],
    "repeated by a plain producer": [
        *sent("a", 1, promise=Promise.PLAIN),
        polled((0, "a"), (1, "a")),
    ],
    "reordered by a plain producer": [
        *sent("a", 1, promise=Promise.PLAIN),
        *sent("b", 0, promise=Promise.PLAIN),
        polled((0, "b"), (1, "a")),
    ],
    "an unknown one that was stored late": [
        *sent("a", None, stage=Stage.UNKNOWN),
        *sent("b", 0),
        polled((0, "b"), (1, "a")),
    ],
    "a batch that was repeated as a whole": [
        *sent("a", 2, promise=Promise.PLAIN, unit="u"),
        *sent("b", 3, promise=Promise.PLAIN, unit="u"),
        polled((0, "a"), (1, "b"), (2, "a"), (3, "b")),
    ],
    "drained": [*stored("a"), polled((0, "a")), Drained(client="c", ends=(at(1),))],
    "committed again": [*committed(5), *committed(5, client="n"), *committed(6)],
    "two commits at the same time": [
        committed(5)[0],
        *committed(6, client="n"),
        committed(5)[1],
    ],
    "a commit that was refused": [*committed(5), *committed(4, Stage.FAIL, client="n")],
    "a commit that was asked for": [
        *committed(5),
        Committed(client="j", group="g", position=at(5)),
    ],
    "a fault": [Note(what="kill")],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_kafka_allows_is_no_violation(name: str) -> None:
    assert found(GOOD[name]) == set()


def test_the_log_may_not_end_before_what_was_acknowledged_or_read() -> None:
    history = [*stored("a", "b"), polled((0, "a"), (1, "b")), Drained(client="c", ends=(at(1),))]
    (finding,) = check(history).named("lost-write")
    assert "end at 1" in finding.what


def test_a_consumer_begins_where_it_was_put() -> None:
    good = [*stored("a", "b", "c", "d"), ALL]
    assert found([*good, assigned(1), polled((1, "b"))]) == set()
    assert found([*good, assigned(1), polled((2, "c"))]) == {"poll-skip"}
    assert found([*good, assigned(1), polled((0, "a"))]) == {"nonmonotonic-poll"}


def test_a_step_across_offsets_at_which_nothing_is_known_is_a_gap_and_no_skip() -> None:
    history = [*sent("a", 0), *sent("b", 2), assigned(0), polled((0, "a")), polled((2, "b"))]
    assert found(history) == {"gap"}


def test_a_member_begins_between_what_is_committed_and_what_may_be() -> None:
    history = [*stored("a", "b", "c", "d"), ALL, *committed(1), *committed(2, Stage.UNKNOWN)]

    def begins(offset: int) -> set[str]:
        return found([*history, rebalanced("n"), polled((offset, "abcd"[offset]), client="n")])

    assert [begins(offset) for offset in range(4)] == [
        {"nonmonotonic-poll"},
        set(),
        set(),
        {"poll-skip"},
    ]


def test_a_member_of_a_group_without_commits_may_begin_anywhere() -> None:
    history = [*stored("a", "b", "c", "d"), ALL, rebalanced("n"), polled((2, "c"), client="n")]
    assert found(history) == set()


def test_a_group_must_be_told_what_it_committed() -> None:
    asked = Committed(client="j", group="g", position=at(4))
    assert found([*committed(5), asked]) == {"committed-back"}
    assert found([*committed(5), replace(asked, position=at(None))]) == {"committed-back"}


def test_repetitions_of_plain_producers_are_counted() -> None:
    report = check(GOOD["repeated by a plain producer"])
    assert report.counts["repeated by plain producers"] == 1
    assert report.counts["sent ok"] == 1
    assert report.counts["records read"] == 2


def test_a_history_survives_being_written_and_read() -> None:
    for history in [*VIOLATIONS.values(), *GOOD.values()]:
        file = io.StringIO()
        write_history(history, file)
        file.seek(0)
        assert [*read_history(file)] == history


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"event": "sent"}', '{"event": "note"}'])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    with pytest.raises(BadHistoryError, match="line 2"):
        [*read_history(['{"event": "note", "what": "x"}', line])]


def test_a_flood_of_findings_is_counted_and_cut() -> None:
    report = check(stored(*(f"v{number}" for number in range(MAX_FINDINGS + 5))))
    assert report.found["unseen"] == MAX_FINDINGS + 5
    assert len(report.findings) == MAX_FINDINGS


def test_a_long_poll_is_shortened_in_the_evidence() -> None:
    values = [f"v{number}" for number in range(100)]
    records = [*enumerate(values), (50, "v50")]
    finding = check([*stored(*values), polled(*records)]).findings[0].as_dict()
    (poll,) = finding["evidence"]  # type: ignore[misc]
    assert len(poll["records"]) + poll["records_left_out"] == 101  # type: ignore[has-type]


def test_a_recorder_knows_what_is_still_to_be_read() -> None:
    recorder = Recorder()
    sending = Sending(recorder, "p", Promise.PLAIN)
    first, second, third = (sending.begin(T, 0) for _ in range(3))
    recorder.add(polled((0, first.value)))
    sending.ok(first, 0)
    sending.ok(second, 1)
    sending.failed(third, "lost", certainly=False)
    assert (recorder.acked, recorder.unseen, recorder.under_way) == (2, 1, 0)
    recorder.add(polled((1, second.value)))
    assert recorder.unseen == 0
    assert check(recorder.history).ok


EVERYTHING = list(Target)


def test_an_earlier_control_plane_may_tell_consumers_of_an_earlier_end() -> None:
    lapse = [
        *stored("a", "b"),
        polled((0, "a"), (1, "b")),
        *committed(2),
        WentBack(),
        OutOfRange(client="c", position=at(2)),
        polled((0, "a")),
        *committed(0),
        Restored(),
        *committed(1),
        polled((0, "a"), (1, "b")),
    ]
    assert check(lapse).findings == []
    without = [event for event in lapse if not isinstance(event, WentBack | Restored)]
    assert set(check(without).found) == {"out-of-range", "committed-back", "nonmonotonic-poll"}


def test_an_offset_that_an_earlier_control_plane_gave_out_again_is_found() -> None:
    twice = [*stored("a"), polled((0, "a")), WentBack(), *sent("b", 0), Restored()]
    found = {"inconsistent-offsets", "lost-write", "nonmonotonic-send"}
    assert set(check(twice).found) == found


def test_the_same_seed_plans_the_same_faults() -> None:
    once, again, other = (plan(seed, 60, brokers=2, targets=EVERYTHING) for seed in (7, 7, 8))
    assert once == again
    assert once != other
    assert [fault.at_s for fault in once] == sorted(fault.at_s for fault in once)


def test_a_long_plan_has_faults_of_all_kinds_and_targets() -> None:
    faults = plan(1, 600, brokers=3, targets=EVERYTHING)
    assert {fault.kind for fault in faults} == set(Kind) - set(DISASTERS)
    assert {fault.target for fault in faults} == set(Target)
    assert {broker for fault in faults for broker in fault.brokers} == {0, 1, 2}
    process = {fault.kind for fault in faults if fault.target is Target.PROCESS}
    assert process == {Kind.KILL, Kind.PAUSE}


def test_what_cannot_be_broken_is_left_alone() -> None:
    faults = plan(1, 600, brokers=1, targets=[Target.CLIENTS])
    assert {fault.target for fault in faults} == {Target.CLIENTS}
    assert plan(1, 600, brokers=1, targets=[]) == []


def test_a_report_tells_its_findings_as_json() -> None:
    report: Report = check(VIOLATIONS["unseen"])
    told = json.loads(json.dumps(report.as_dict()))
    assert told["found"] == {"unseen": 1}
    assert "offset 1" in str(report.findings[0])
