"""The trace of a run: each call over the network, and the digest of everything that happened."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from stratalog.testing.simulation import Call


@dataclass
class Trace:
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    lines: list[str] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)

    def note(self, call: Call) -> None:
        line = f"{call.at_s:.6f} {call.process} {call.target} {call.operation} {call.fate}"
        self.digest.update(line.encode())
        self.lines.append(line)
        self.fates[call.fate.value] += 1
