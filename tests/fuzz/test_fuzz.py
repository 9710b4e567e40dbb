"""The short run of the fuzzer, and its own checks. `python -m tests.fuzz` is the long run."""

import time
from collections.abc import Callable
from itertools import count

import pytest
from tests.fuzz.judge import Case, Finding, Outcome, Target, fuzz
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import all_targets

from stratalog.errors import CallError

INPUTS = 1_000_000


def run(code: Callable[[bytes], object], inputs: int = 2000, seed: int = 1) -> Outcome:
    target = Target("a target", 1, [Case(b"good input", code)])
    return fuzz([target], inputs, seed, seconds=time.perf_counter)


@pytest.mark.timeout(900)
def test_a_million_inputs_find_nothing() -> None:
    outcome = fuzz(all_targets(), INPUTS, seed=15, seconds=time.perf_counter)
    assert outcome.findings == []
    assert set(outcome.inputs) == {target.name for target in all_targets()}


def test_every_good_input_is_accepted() -> None:
    """An input that is refused has only mutants that are refused for the same reason."""
    for target in all_targets():
        for case in target.cases:
            case.run(case.good)


def test_an_untyped_error_is_found_once() -> None:
    def fail(data: bytes) -> None:
        if len(data) < 5:
            raise KeyError(data)
        raise CallError("a typed one")

    [finding] = run(fail).findings
    assert finding.target == "a target"
    assert finding.reason.startswith("KeyError at test_fuzz.py:")
    assert len(finding.data) < 5


def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.judge._GROUP_SECONDS", 0.05)

    def hang(data: bytes) -> None:
        for _ in count():
            pass

    [*_, last] = run(hang, 256).findings
    assert last.reason.startswith("takes more than")


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.judge._GROWTH_BYTES", 8 * 2**20)
    kept: list[bytes] = []
    outcome = run(lambda data: kept.append(bytes(16384) + data))
    assert [finding.target for finding in outcome.findings] == ["all targets"]


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        return list(Mutator(seed).mutants(b"a good input", [b"another"], 512))

    assert inputs(5) == inputs(5) != inputs(6)
    assert len(set(inputs(5))) > 400


def test_findings_name_the_input() -> None:
    assert str(Finding("footers", "ValueError", b"\x01")).endswith("input: 01")
