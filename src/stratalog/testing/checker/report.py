"""The findings of the checker, each with the operations that prove it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.testing.checker.history import Event, Poll, to_json

MAX_FINDINGS = 50
"""The limit per check. One lie of a broker can spoil every read after it."""
_MAX_POLL_RECORDS = 12
"""Longer polls are shortened: a poll of thousands of records is no readable evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    """The violation's name."""
    what: str
    evidence: Sequence[tuple[int, Event]]
    """Operations, with their positions in the history."""

    def as_dict(self) -> dict[str, object]:
        evidence = [{"at": place, **_shortened(event)} for place, event in self.evidence]
        return {"check": self.check, "what": self.what, "evidence": evidence}

    def __str__(self) -> str:
        places = ", ".join(f"#{place}" for place, _ in self.evidence)
        return f"{self.check}: {self.what} [{places}]"


def _shortened(event: Event) -> dict[str, object]:
    written = to_json(event)
    if isinstance(event, Poll) and len(event.records) > _MAX_POLL_RECORDS:
        half = _MAX_POLL_RECORDS // 2
        written["records"] = [*event.records[:half], *event.records[-half:]]
        written["records_left_out"] = len(event.records) - 2 * half
    return written


@dataclass(slots=True)
class Report:
    counts: Counter[str] = field(default_factory=Counter)
    """The size of the history, and facts that are worth knowing but no violation."""
    found: Counter[str] = field(default_factory=Counter)
    """Violations by name, also the ones that `findings` leaves out."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.found

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.found[finding.check] += 1
            if self.found[finding.check] <= MAX_FINDINGS:
                self.findings.append(finding)

    def named(self, check: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.check == check]

    def as_dict(self) -> Mapping[str, object]:
        return {
            "ok": self.ok,
            "counts": dict(self.counts),
            "found": dict(self.found),
            "findings": [finding.as_dict() for finding in self.findings],
        }
