"""The events that a workload notes beside its work, and the state that they promise after a cut."""

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

EVENTS = "events"
"""A file at the top of the recorded folder. It is no part of the disk that a power cut leaves."""


class Scope(StrEnum):
    """The part of the workload that runs."""

    ALL = "all"
    PRODUCERS = "producers"


class Notes:
    """Writes events. A note is one write, which stands in the record between the changes before it
    and the changes after it."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, event: str, **values: Any) -> None:
        os.write(self._descriptor, json.dumps({"event": event, **values}).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that a producer sent. A sink's batch has no sequence."""

    partition: int
    sequence: int | None
    values: tuple[str, ...]


@dataclass(slots=True)
class Promised:
    """The events so far."""

    topics: set[str] = field(default_factory=set)
    deleted_topics: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    acknowledged: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """By partition and offset."""
    sent: list[Sent] = field(default_factory=list)
    answered: int = 0
    """How many of the sent batches, the first ones, are acknowledged."""
    trimmed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    trimming: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    stage: str = ""

    @property
    def in_flight(self) -> Sequence[Sent]:
        return self.sent[self.answered :]

    def take(self, line: bytes) -> None:
        values = json.loads(line)
        match values.pop("event"):
            case "stage":
                self.stage = values["name"]
            case "topic":
                self.topics.add(values["name"])
            case "deleting":
                self.deleting.add(values["name"])
            case "deleted":
                self.deleted_topics.add(values["name"])
            case "sent":
                values["values"] = tuple(values["values"])
                self.sent.append(Sent(**values))
            case "acknowledged":
                sent = self.sent[self.answered]
                offsets = range(values["base"], values["base"] + len(sent.values))
                self.acknowledged[sent.partition].update(zip(offsets, sent.values, strict=True))
                self.answered += 1
            case "trimming":
                self.trimming[values["partition"]] = values["offset"]
            case "trimmed":
                self.trimmed[values["partition"]] = values["offset"]
