"""The findings of a check, as values that turn into JSON."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

Progress = Callable[[str, int, int | None], None]
"""Called with the kind of thing that is checked, the number done, and the total if it is known."""


class Promise(IntEnum):
    """The promises, with their numbers in docs/architecture.md."""

    READABLE = 1
    ONE_VALUE = 2
    DENSE = 3
    BOUNDARIES = 4
    OBJECTS = 5
    HOLDERS = 6
    CHECKSUMS = 7


class Severity(StrEnum):
    DAMAGE = "damage"
    """A reader gets wrong data or misses data, now or later."""
    WASTE = "waste"
    """No reader is affected, but space is used for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A promise that a snapshot does not keep."""

    promise: Promise
    text: str
    severity: Severity = Severity.DAMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem and the partition, object or broker that has it."""

    where: str
    problem: Problem

    def as_dict(self) -> dict[str, object]:
        return {
            "promise": int(self.problem.promise),
            "name": self.problem.promise.name.lower(),
            "severity": str(self.problem.severity),
            "where": self.where,
            "what": self.problem.text,
        }

    def __str__(self) -> str:
        return f"{self.where}: {self.problem.text}"


MAX_FINDINGS = 1000
"""The most findings of a report: a broken store must not exhaust the memory of the check."""


@dataclass(slots=True)
class Report:
    deep: bool
    started_ms: int
    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of topics, partitions, rows, batches, bytes and objects that were checked."""
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0
    """The number of findings beyond `MAX_FINDINGS`."""

    @property
    def ok(self) -> bool:
        """True if nothing was found, not even waste."""
        return not self.findings

    @property
    def damaged(self) -> bool:
        return any(finding.problem.severity is Severity.DAMAGE for finding in self.findings)

    def add(self, where: str, problems: list[Problem]) -> None:
        for problem in problems:
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(Finding(where=where, problem=problem))
            else:
                self.left_out += 1

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "damaged": self.damaged,
            "deep": self.deep,
            "started_ms": self.started_ms,
            "counts": dict(self.counts),
            "findings": [finding.as_dict() for finding in self.findings],
            "left_out": self.left_out,
        }
