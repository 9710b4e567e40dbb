"""Measures a row on all sides in rounds, each side once a round: all see the same machine."""

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.kafka import servers
from bench.kafka.processes import Patience
from bench.kafka.rows import Row, Target, create_target
from bench.kafka.running import Run

STRATALOG = "Stratalog"
KAFKA = "Kafka"
FLUSHED = "Kafka, flush.messages=1"
MOCK = "mock"
FLUSH: dict[str, str] = {"flush.messages": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    rounds: int
    seconds: float
    noise: float
    """The share of the machine that processes of others may use during a run."""
    repeats: int
    patience_seconds: float
    trees: Mapping[str, Path]
    """Source trees of Stratalog, by the name of their side."""


@dataclass(slots=True)
class Figures:
    figures: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    @property
    def cost(self) -> float:
        return statistics.median(self.costs)


@dataclass(slots=True)
class Side:
    """One competitor of a row. Its warm-ups find an amount of work that takes long enough."""

    name: str
    server: servers.Server
    row: Row
    config: dict[str, str]
    amount: int
    figures: Figures = field(default_factory=Figures)
    _target: Target | None = None
    _targets: int = 0

    def run(self) -> Run:
        if self._target is None or self.row.fresh:
            self._targets += 1
            name = f"{self.row.name}-{len(self.config)}-{self._targets}"
            self._target = create_target(self.row, self.server, name, self.config)
        return self.row.work(self._target, self.amount)

    def warm_up(self, seconds: float) -> None:
        """Compiled code, touched memory, known topics; at least two runs."""
        while True:
            run = self.run()
            wanted = int(self.amount * min(10.0, seconds / run.seconds))
            self.amount = max(1, min(self.row.most, wanted))
            if run.seconds >= seconds * 0.6 or wanted >= self.row.most:
                break
        self.run()

    def measure(self, how: How, patience: Patience) -> None:
        """Repeat while others used the machine, and keep the run that was disturbed least."""
        best: Run | None = None
        for _ in range(1 + how.repeats):
            patience.wait_for_quiet()
            run = self.run()
            if best is None or run.noise < best.noise:
                best = run
            if best.noise <= how.noise:
                break
            say(f"    {self.name}: others used {run.noise:.0%} of the machine")
        assert best is not None
        self.figures.figures.append(self.row.figure(self.amount, best))
        self.figures.costs.append(self.row.cost(self.amount, best))
        self.figures.noise.append(best.noise)


def measure(row: Row, how: How) -> dict[str, Figures]:
    with _sides(row, how) as sides:
        for side in sides:
            say(f"  {side.name}: warming up")
            side.warm_up(how.seconds * row.stretch)
        patience = Patience(how.noise, how.patience_seconds)
        for number in range(how.rounds):
            for side in sides:
                side.measure(how, patience)
            shown = ", ".join(f"{s.name} {s.figures.figures[-1]:,.2f}" for s in sides)
            say(f"  round {number + 1} of {how.rounds}: {shown} {row.unit.name}")
        return {side.name: side.figures for side in sides}


@contextmanager
def _sides(row: Row, how: How) -> Iterator[list[Side]]:
    """Fresh servers and folders, so that nothing has to be deleted while another row is timed."""
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(servers.stratalog(tree)) for name, tree in how.trees.items()
        }
        started[KAFKA] = stack.enter_context(servers.kafka())
        if row.mock:
            started[MOCK] = stack.enter_context(servers.mock())
        sides = [Side(name, server, row, {}, row.first) for name, server in started.items()]
        if row.flushed:
            sides.append(Side(FLUSHED, started[KAFKA], row, FLUSH, row.first))
        yield sides


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
