"""The judgement: every named check, applied to one history. Pure: no I/O, no clock.

The names come from Jepsen's Kafka checker where it has the same check. A new check is a function
from a `View` to findings, added to `CHECKS`. Checks of uncommitted and of aborted transactional
messages will be added that way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stratalog.testing.checker import poll_checks, send_checks
from stratalog.testing.checker.history import Event, Poll, Promise
from stratalog.testing.checker.history_view import View
from stratalog.testing.checker.report import Finding, Report

Check = Callable[[View], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "lost-write": send_checks.lost_write,
    "unseen": send_checks.unseen,
    "inconsistent-offsets": send_checks.inconsistent_offsets,
    "duplicate": send_checks.duplicate,
    "phantom": send_checks.phantom,
    "aborted-read": send_checks.aborted_read,
    "nonmonotonic-send": send_checks.nonmonotonic_send,
    "int-nonmonotonic-send": send_checks.int_nonmonotonic_send,
    "poll-skip": poll_checks.poll_skip,
    "int-poll-skip": poll_checks.int_poll_skip,
    "nonmonotonic-poll": poll_checks.nonmonotonic_poll,
    "int-nonmonotonic-poll": poll_checks.int_nonmonotonic_poll,
    "out-of-range": poll_checks.out_of_range,
    "gap": poll_checks.gap,
    "committed-back": poll_checks.committed_back,
}


def check(history: Sequence[Event], checks: Mapping[str, Check] = CHECKS) -> Report:
    """Judge a history of topics without deletions and without transactions.

    For other topics leave checks out: `gap` if transactions or compaction take offsets,
    `out-of-range` and `lost-write` if retention deletes.
    """
    view = View(history)
    report = Report(counts=_counts(view))
    for one in checks.values():
        report.add(one(view))
    return report


def _counts(view: View) -> Counter[str]:
    counts: Counter[str] = Counter()
    for message in view.messages.values():
        counts["sent"] += 1
        counts[f"sent {message.stage}"] += 1
    for _, message in send_checks.repeated(view):
        if message.invoked.promise is not Promise.IDEMPOTENT:
            counts["repeated by plain producers"] += 1
    for event in view.history:
        if isinstance(event, Poll):
            counts["polls"] += 1
            counts["records read"] += len(event.records)
    counts["partitions"] = len(view.logs)
    return counts
