"""Power cuts: a recorded run, the states that cuts may leave of it, and the verdict on each."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.faults.power.disk import Disk, Loss
from tests.faults.power.guards import Guard
from tests.faults.power.history import EVENTS, Promised, Scope
from tests.faults.power.recording import Change, record
from tests.faults.power.verdict import judge


class Cut(NamedTuple):
    """After so many changes."""

    after: int
    loss: Loss
    seed: int


class Violation(NamedTuple):
    cut: Cut
    stage: str
    error: BaseException

    def __str__(self) -> str:
        where = f"{self.stage}: cut after change {self.cut.after}, seed {self.cut.seed}"
        return f"{where}, {self.cut.loss}: {type(self.error).__name__}: {self.error}"


class Outcome(NamedTuple):
    changes: int
    states: Counter[str]
    """How many states were opened of each stage of the work."""
    violations: Sequence[Violation]


def record_work(
    folder: Path, guard: Guard = Guard.NONE, *, scope: Scope = Scope.ALL, fail: str = ""
) -> list[Change]:
    worked = Path(tempfile.mkdtemp(prefix="worked-", dir=folder))
    log = worked.with_suffix(".log")
    return record("tests.faults.power.workload", [guard, scope], folder=worked, log=log, fail=fail)


def choose(changes: Sequence[Change], *, states: int, seed: int, begin: int = 0) -> list[Cut]:
    """Half of the cuts lose everything that is not synced; these come after a sync or an event,
    because between two of them the state is the same. The others may come anywhere."""
    chance = random.Random(seed)
    syncs = [at + 1 for at, change in enumerate(changes) if change.kind == "s"]
    telling = [at for at in sorted({*syncs, *_after_events(changes)}) if at >= begin]
    anywhere = range(begin, len(changes) + 1)
    strict = _spread(telling, states // 2, chance)
    cuts = [Cut(after, Loss.ALL, 0) for after in strict]
    for number, after in enumerate(_spread(anywhere, states - len(cuts), chance)):
        loss = Loss.TORN if number % 3 == 0 else Loss.SOME
        cuts.append(Cut(after, loss, chance.randrange(1 << 32)))
    return sorted(cuts)


def first_acknowledgement(changes: Sequence[Change]) -> int:
    return next(at for at in _after_events(changes) if b'"acknowledged"' in changes[at - 1].data)


def _after_events(changes: Sequence[Change]) -> list[int]:
    mark = b'{"event": '
    return [at + 1 for at, each in enumerate(changes) if each.data.startswith(mark)]


def _spread(places: Sequence[int], count: int, chance: random.Random) -> list[int]:
    """So many of the places, one of each stretch of them."""
    count = min(count, len(places))
    edges = [len(places) * n // count for n in range(count + 1)]
    return [places[chance.randrange(first, end)] for first, end in pairwise(edges)]


def try_cuts(
    changes: Sequence[Change],
    cuts: Sequence[Cut],
    *,
    stop_at_first: bool = False,
    failed_syncs_reach: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Replay the changes and open the state of each cut, in their order."""
    replay = Replay(failed_syncs_reach=failed_syncs_reach)
    states: Counter[str] = Counter()
    violations: list[Violation] = []
    for cut in sorted(cuts):
        replay.go_to(changes, cut.after)
        states[replay.promised.stage] += 1
        error = _try(replay, cut)
        if error is not None:
            violations.append(Violation(cut, replay.promised.stage, error))
            say(str(violations[-1]))
            if stop_at_first:
                break
    return Outcome(len(changes), states, violations)


class Replay:
    """The disk and the promises after some changes."""

    def __init__(self, *, failed_syncs_reach: bool = False) -> None:
        self.disk = Disk(failed_syncs_reach=failed_syncs_reach)
        self.promised = Promised()
        self._done = 0
        self._events: set[int] = set()
        """The descriptors of the file of events."""

    def go_to(self, changes: Sequence[Change], end: int) -> None:
        for change in changes[self._done : end]:
            self._take(change)
        self._done = end

    def _take(self, change: Change) -> None:
        if change.kind == "o":
            self._events.discard(change.descriptor)
            if change.paths == [EVENTS]:
                self._events.add(change.descriptor)
                return
        if change.descriptor in self._events and change.kind == "w":
            self.promised.take(change.data)
        else:
            self.disk.apply(change)


def _try(replay: Replay, cut: Cut) -> BaseException | None:
    folder = Path(tempfile.mkdtemp(prefix="stratalog-cut-", dir=quick_place()))
    try:
        replay.disk.cut(folder / "disk", cut.loss, cut.seed)
        judge(folder / "disk", replay.promised)
        return None
    except Exception as error:
        return error
    finally:
        shutil.rmtree(folder)


def quick_place() -> str | None:
    """Memory, where there is such a place: the disk of these tests is modelled, and waiting for a
    real one would leave time for a tenth of the states."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
