"""The bench beside Kafka repeats runs that others disturbed, and needs programs that it names."""

import shutil
from collections.abc import Sequence

import pytest
from bench.kafka import rounds, table
from bench.kafka.maven import classpath
from bench.kafka.processes import Patience
from bench.kafka.rounds import KAFKA, STRATALOG, Figures, How, Side
from bench.kafka.rows import ROWS, Row, Target
from bench.kafka.running import Run
from bench.kafka.servers import Server

HOW = How(rounds=1, seconds=1, noise=0.05, repeats=2, patience_seconds=0, trees={})
QUIET = 0.01


def measured(monkeypatch: pytest.MonkeyPatch, noises: Sequence[float]) -> tuple[Figures, int]:
    """Measure once, with runs of so much noise. Return the figures and the number of runs."""
    server = Server("nowhere:1", 1)
    monkeypatch.setattr(rounds, "create_target", lambda *_: Target(server, [("t", 0)]))
    left = list(noises)

    def work(_target: Target, _amount: int) -> Run:
        noise = left.pop(0)
        return Run(seconds=1 + noise, cpu_seconds=1, noise=noise)

    side = Side("side", server, Row(name="row", load="", work=work, scale=1), {}, amount=100)
    side.measure(HOW, Patience(HOW.noise, HOW.patience_seconds))
    return side.figures, len(noises) - len(left)


def test_a_quiet_run_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, runs = measured(monkeypatch, [QUIET])
    assert (figures.noise, runs) == ([QUIET], 1)


def test_a_disturbed_run_is_repeated_until_one_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, runs = measured(monkeypatch, [0.5, QUIET, QUIET])
    assert (figures.figures, figures.noise, runs) == ([100 / (1 + QUIET)], [QUIET], 2)


def test_the_least_disturbed_run_counts_if_none_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, runs = measured(monkeypatch, [0.5, 0.2, 0.3])
    assert (figures.figures, figures.noise, runs) == ([100 / 1.2], [0.2], 3)


@pytest.mark.parametrize(("noise", "mark"), [(QUIET, ""), (0.2, " ~")])
def test_a_row_with_a_disturbed_run_is_marked(noise: float, mark: str) -> None:
    sides = {
        name: Figures(figures=[figure], costs=[1.0], noise=[noise])
        for name, figure in {STRATALOG: 30.0, KAFKA: 40.0}.items()
    }
    cells = table.line(ROWS[0], sides, HOW.noise, ()).split(" | ")
    assert cells[0] == f"| `{ROWS[0].name}`{mark}"
    assert cells[3] == "**0.75**"


@pytest.mark.parametrize(("missing", "named"), [("java", "Java 17"), ("mvn", "Maven")])
def test_a_machine_without_java_or_maven_is_told_to_install_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, named: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else f"/bin/{name}")
    with pytest.raises(SystemExit, match=f"no `{missing}` on the PATH.*{named}.*install it"):
        classpath()
