"""Runs targets on mutants, and judges: every input ends soon, in a result or in a typed error, and
memory stays flat."""

import faulthandler
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.mutation import Mutator

from stratalog.errors import StratalogError

GROUP = 256
_GROUP_SECONDS = 30
"""Processor time, so that a busy machine is no hang. A group usually takes some milliseconds."""
_MOST_FINDINGS = 10
_GROWTH_BYTES = 96 * 1024 * 1024
_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Case:
    """A good input, and the code that it goes through."""

    good: bytes
    run: Callable[[bytes], object]
    wrong_ones: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None
    """Looks at many inputs at once, and leaves those for `run` that something is wrong with."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    share: float
    """The percentage of inputs. Cheap targets get many, and none gets less than 1."""
    cases: Sequence[Case]
    group: int = GROUP
    """Mutants of one good input that are made, and timed, together."""


@dataclass(frozen=True, slots=True)
class Finding:
    target: str
    reason: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.target}: {self.reason}\n  input: {self.data.hex()}"


@dataclass(slots=True)
class Outcome:
    inputs: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.inputs.values())


class HangError(BaseException):
    """Not an `Exception`, so that no code under test takes it for one of its own."""


def fuzz(
    targets: Sequence[Target],
    inputs: int,
    seed: int,
    *,
    seconds: Callable[[], float],
    tell: Callable[[Outcome], None] = lambda _: None,
    tell_finding: Callable[[Finding], None] = lambda _: None,
) -> Outcome:
    """Stop at the first hang, or when there are many findings."""
    mutator, outcome = Mutator(seed), Outcome()
    shares = [target.share / target.group for target in targets]
    goods = {target.name: [case.good for case in target.cases] for target in targets}
    known: set[str] = set()
    settled_bytes = 0
    with _alarm():
        while outcome.total < inputs and len(outcome.findings) < _MOST_FINDINGS:
            target = targets[mutator.choose(shares)]
            case = target.cases[mutator.below(len(target.cases))]
            began = seconds()
            mutants = mutator.mutants(case.good, goods[target.name], target.group)
            for finding in _judged(target, case, mutants, known):
                outcome.findings.append(finding)
                tell_finding(finding)
            spent = seconds() - began
            outcome.inputs[target.name] = outcome.inputs.get(target.name, 0) + target.group
            outcome.seconds[target.name] = outcome.seconds.get(target.name, 0.0) + spent
            if not settled_bytes and outcome.total * 10 >= inputs:
                settled_bytes = memory_bytes()
            tell(outcome)
    growth_bytes = memory_bytes() - settled_bytes
    if growth_bytes > _GROWTH_BYTES:
        reason = f"memory grew by {growth_bytes / 2**20:.0f} MiB in nine tenths of the run"
        outcome.findings.append(Finding("all targets", reason, b""))
    return outcome


def _judged(
    target: Target, case: Case, mutants: Iterator[bytes], known: set[str]
) -> Iterator[Finding]:
    signal.setitimer(signal.ITIMER_VIRTUAL, _GROUP_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, 3 * _GROUP_SECONDS)
    data = b""
    try:
        for data in mutants if case.wrong_ones is None else case.wrong_ones(list(mutants)):
            try:
                case.run(data)
            except StratalogError:
                pass
            except Exception as error:
                reason = _reason(error)
                if reason not in known:
                    known.add(reason)
                    yield Finding(target.name, reason, data)
    except HangError:
        yield Finding(target.name, f"takes more than {_GROUP_SECONDS} s", data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _reason(error: Exception) -> str:
    """The error with the line that raised it, without the values in its message."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {last.line}"


@contextmanager
def _alarm() -> Iterator[None]:
    """Python code that hangs gets an error. Code in C or machine code hears of no signal: there,
    the process ends, after the stack is written."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGVTALRM, ring)
    faulthandler.register(signal.SIGPROF, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGPROF)
        signal.signal(signal.SIGVTALRM, before)


def memory_bytes() -> int:
    """The memory of this process: now, or where the system does not tell, at its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * _PAGE_BYTES
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
