"""The word rules: prose whose subject is a noun.

Three numbers say how far a room is from that:

- `what`: how often `what` stands in 1,000 words of prose;
- `starts`: sentences that begin with `What`, `Whether`, `Those`, `Whoever`, `Nobody`, `Who` or
  `Somebody`;
- `avoided`: `whoever`, `nobody`, `somebody`, `everybody`, `anew`, `told`, `those that` and
  `those of`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.prose import Paragraph, paragraphs
from tests.tidy.rooms import ROOT, prose_files, room_of

_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?:;])[)\"'”]*\s+(?=[\"'“(]*[A-Z`])")
_STARTS = re.compile(r"[\"'“(*_]*(?:What|Whether|Those|Whoever|Nobody|Who|Somebody)\b")
_AVOIDED = re.compile(
    r"\b(?:whoever|nobody|somebody|everybody|anew|told|those that|those of)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Counted:
    """The counts of some prose."""

    words: int = 0
    whats: int = 0
    starts: int = 0
    avoided: int = 0

    @property
    def what_rate(self) -> float:
        """How often `what` stands in 1,000 words, to one decimal, rounded up."""
        return -(-self.whats * 10_000 // self.words) / 10 if self.words else 0.0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.words + other.words,
            self.whats + other.whats,
            self.starts + other.starts,
            self.avoided + other.avoided,
        )


@dataclass(frozen=True)
class Sentence:
    """A sentence that a word rule counts, and where it stands."""

    path: Path
    line: int
    text: str


def count_paragraphs(found: Iterable[Paragraph]) -> Counted:
    total = Counted()
    for paragraph in found:
        sentences = _SENTENCE.split(paragraph.text)
        total += Counted(
            words=len(_WORD.findall(paragraph.text)),
            whats=len(_WHAT.findall(paragraph.text)),
            starts=sum(_STARTS.match(sentence) is not None for sentence in sentences),
            avoided=len(_AVOIDED.findall(paragraph.text)),
        )
    return total


def count_files(root: Path = ROOT) -> dict[Path, Counted]:
    return {path: count_paragraphs(paragraphs(root / path)) for path in prose_files(root)}


def count_rooms(root: Path = ROOT) -> dict[str, Counted]:
    rooms: dict[str, Counted] = {}
    for path, counted in count_files(root).items():
        room = room_of(path)
        rooms[room] = rooms.get(room, Counted()) + counted
    return dict(sorted(rooms.items()))


def counted_sentences(root: Path = ROOT) -> Iterator[Sentence]:
    """Yield every sentence that a word rule counts, so that it can be rewritten."""
    for path in prose_files(root):
        for paragraph in paragraphs(root / path):
            for sentence in _SENTENCE.split(paragraph.text):
                if _STARTS.match(sentence) or _WHAT.search(sentence) or _AVOIDED.search(sentence):
                    yield Sentence(path, paragraph.line, sentence)
