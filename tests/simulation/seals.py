"""Counts of sealed blocks by reason, which show that the loads exercise the whole policy."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.replacing import replaced

from stratalog.block.sealing import Reason, Sealing, Wait

SEALS = ("block sealed full", "block sealed window", "block sealed early", "early in succession")
"""Every way to seal a block under a load. The last one is a block that is sealed early while
another early one is under way."""


@contextmanager
def counted_seals(counts: Counter[str]) -> Iterator[None]:
    decide = Sealing.decide

    def counted(sealing: Sealing, now_s: float) -> Reason | Wait:
        verdict = decide(sealing, now_s)
        if isinstance(verdict, Reason):
            counts[f"block sealed {verdict.value}"] += 1
            counts["early in succession"] += verdict is Reason.EARLY and sealing._under_way > 0
        return verdict

    with replaced(Sealing, "decide", counted):
        yield
