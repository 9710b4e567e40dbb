from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.consumer.beats import ORDERS, parts

from stratalog.errors import CallError
from stratalog.groups.consumer.errors import (
    InvalidHeartbeatError,
    InvalidPatternError,
    UnsupportedAssignorError,
)
from stratalog.groups.consumer.heartbeat import Heartbeat, check_heartbeat

JOIN = Heartbeat(
    group_id="g",
    member_id="m",
    epoch=0,
    rebalance_timeout_ms=1000,
    topic_names=frozenset({"t"}),
    owned=frozenset(),
)
GO_ON = Heartbeat(group_id="g", member_id="m", epoch=3)


@pytest.mark.parametrize(
    ("beat", "changes"),
    [
        (JOIN, {"group_id": ""}),
        (JOIN, {"member_id": ""}),
        (JOIN, {"instance_id": ""}),
        (JOIN, {"rack_id": ""}),
        (JOIN, {"rebalance_timeout_ms": -1}),
        (JOIN, {"owned": None}),
        (JOIN, {"owned": parts(ORDERS, 0)}),
        (JOIN, {"topic_names": None}),
        (GO_ON, {"member_id": ""}),
        (GO_ON, {"epoch": -2}),
        (GO_ON, {"epoch": -3}),
    ],
)
def test_fields_that_do_not_go_together_are_refused(
    beat: Heartbeat, changes: dict[str, Any]
) -> None:
    check_heartbeat(beat)
    with pytest.raises(InvalidHeartbeatError):
        check_heartbeat(replace(beat, **changes))


@pytest.mark.parametrize(
    "changes",
    [{"epoch": -1}, {"epoch": -2, "instance_id": "i"}, {"assignor": "range"}],
)
def test_a_member_may_leave_and_choose_its_assignor(changes: dict[str, Any]) -> None:
    check_heartbeat(replace(GO_ON, **changes))


def test_joining_by_a_pattern_alone_is_enough() -> None:
    check_heartbeat(replace(JOIN, topic_names=None, topic_pattern="t.*"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"assignor": "sticky"}, UnsupportedAssignorError),
        ({"topic_pattern": "(t"}, InvalidPatternError),
    ],
)
def test_what_is_not_supported_is_said_so(
    changes: dict[str, Any], expected: type[CallError]
) -> None:
    with pytest.raises(expected):
        check_heartbeat(replace(JOIN, **changes))
