"""The short run of the fuzzer, and its own checks. `python -m tests.fuzz` is the long run."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count

import pytest
from tests.fuzz.compiled_look import DECODED, FRAMED, SOUND_TOO, UNFRAMED, crc_table
from tests.fuzz.compiled_targets import CompiledLoops, compiled_targets
from tests.fuzz.judge import Case, Finding, Outcome, Target, fuzz
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import all_targets

from stratalog.batch.batch_crcs import all_right
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


def test_each_target_gets_at_least_one_input_of_a_hundred() -> None:
    shares = [target.share for target in all_targets()]
    assert round(sum(shares), 6) == 100
    assert min(shares) > 1


def test_every_good_input_is_accepted() -> None:
    """An input that is refused has only mutants that are refused for the same reason."""
    for target in all_targets():
        for case in target.cases:
            case.run(case.good)


def test_mutants_get_past_every_step_of_the_compiled_loops() -> None:
    [target] = compiled_targets()
    loops = CompiledLoops()
    for case in target.cases:
        mutants = list(Mutator(3).mutants(case.good, [case.good], 2000))
        assert loops.wrong_ones(mutants) == []
    for fate in (UNFRAMED, FRAMED, DECODED, SOUND_TOO):
        assert loops.found[fate] > 200


@pytest.mark.skipif(all_right is None, reason="this processor has no instruction for checksums")
def test_loops_that_disagree_are_found() -> None:
    [target] = compiled_targets()
    wrong = CompiledLoops(table=crc_table()[::-1].copy())
    with pytest.raises(AssertionError, match="loops disagree"):
        wrong.run(target.cases[0].good)


def test_a_read_past_the_guarded_room_ends_the_process() -> None:
    code = """
import ctypes
from tests.fuzz.guarded_room import GuardedRoom
room = GuardedRoom(5000)
end = room.address + room.data.size
print(ctypes.string_at(end - 1, 1), flush=True)
ctypes.string_at(end, 1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, b"b'\\x00'\n")


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


def test_a_hang_in_machine_code_ends_the_process() -> None:
    code = """
from collections import deque
from itertools import repeat
from tests.fuzz import judge
judge._GROUP_SECONDS = 0.05
case = judge.Case(b"good", lambda _: deque(repeat(0), maxlen=0))
judge.fuzz([judge.Target("a target", 1, [case])], 256, 1, seconds=lambda: 0.0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGPROF
    assert "in <lambda>" in done.stderr


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.judge._GROWTH_BYTES", 8 * 2**20)
    kept: list[bytes] = []
    # Large enough to outgrow the free memory that earlier tests have left in this process.
    outcome = run(lambda data: kept.append(b"." * 2**17 + data))
    assert [finding.target for finding in outcome.findings] == ["all targets"]


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        return list(Mutator(seed).mutants(b"a good input", [b"another"], 512))

    assert inputs(5) == inputs(5) != inputs(6)
    assert len(set(inputs(5))) > 400


def test_findings_name_the_input() -> None:
    assert str(Finding("footers", "ValueError", b"\x01")).endswith("input: 01")
