"""Mutants of good inputs, made many at once.

A mutant has a few bytes or whole numbers changed, most often to values at the edges of their types,
and may be cut off. A few have a stretch removed, repeated, flooded with one byte, or replaced by a
piece of another input.
"""

from collections.abc import Iterator, Sequence

import numpy as np

_BYTES = np.array(
    [0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x22, 0x5B, 0x7B, 0x2D], np.uint8
)
"""Edges of signed and unsigned bytes and of varints, then the characters that JSON goes by."""
_NUMBERS = [
    number.to_bytes(width, "big", signed=True)
    for width in (2, 4, 8)
    for edge in (7, 8, 15, 16, 31, 32, 63)
    if edge < 8 * width
    for number in (2**edge - 1, -(2**edge), 0, 1, -1)
]
_TOKENS = [
    *(b"null", b"true", b"-1", b"0.5", b"1e999", b"NaN", b"9" * 20, b"9" * 5000),
    *(b"[]", b"{}", b'""', b'"x"', b"[null]", b"[[0]]", b'{"x":0}', b"[" * 5000),
]
"""Values of JSON."""
_MOST_EDITS = 4
_SHAPED = 16
"""One mutant of so many changes its shape."""
_FLOODS = (1, 2, 16, 300, 5000)


class Mutator:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def choose(self, weights: Sequence[float]) -> int:
        shares = np.cumsum(weights)
        return int(np.searchsorted(shares, self._random.random() * shares[-1], side="right"))

    def below(self, end: int) -> int:
        return int(self._random.integers(end))

    def mutants(self, good: bytes, others: Sequence[bytes], count: int) -> Iterator[bytes]:
        """Yield so many mutants of a good input."""
        size = len(good)
        if size == 0:
            for _ in range(count):
                yield self._random.bytes(self.below(64))
            return
        table = np.tile(np.frombuffer(good, np.uint8), (count, 1))
        self._edit(table)
        ends = np.full(count, size)
        is_cut = self._random.random(count) < 0.15
        ends[is_cut] = self._random.integers(0, size, int(is_cut.sum()))
        data = table.tobytes()
        for row, end in enumerate(ends.tolist()):
            mutant = data[row * size : row * size + end]
            if row % _SHAPED == 0:
                # Half of these have no other change, which would most often be found first.
                mutant = self._shaped(mutant if row % (2 * _SHAPED) else good, others)
            yield mutant

    def _edit(self, table: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> None:
        count, size = table.shape
        rows = np.arange(count)
        for edit in range(_MOST_EDITS):
            # Each row gets the first edit, half of them the second one, and so on.
            chosen = rows[self._random.random(count) < 0.5**edit]
            places = self._random.integers(0, size, len(chosen))
            if edit % 2:
                table[chosen, places] = self._random.integers(0, 256, len(chosen), np.uint8)
            else:
                table[chosen, places] = _BYTES[self._random.integers(0, len(_BYTES), len(chosen))]
        number = np.frombuffer(_NUMBERS[self.below(len(_NUMBERS))], np.uint8)
        if size > len(number):
            chosen = rows[self._random.random(count) < 0.2]
            places = self._random.integers(0, size - len(number), len(chosen))
            for byte in range(len(number)):
                table[chosen, places + byte] = number[byte]

    def _shaped(self, mutant: bytes, others: Sequence[bytes]) -> bytes:
        start = self.below(len(mutant) + 1)
        end = start + self.below(len(mutant) - start + 1)
        match self.below(5):
            case 0:
                return mutant[:start] + mutant[end:]
            case 1:
                return mutant[:end] + mutant[start:]
            case 2:
                # A token is most often one where it replaces a digit or a word after a colon.
                start = mutant.rfind(b":", 0, end) + 1 or start
                end = min(mutant.find(mark, start) % (len(mutant) + 1) for mark in (b",", b"}"))
                token = _TOKENS[self.below(len(_TOKENS))]
                return mutant[:start] + token + mutant[end:]
            case 3:
                byte = int(_BYTES[self.below(len(_BYTES))])
                return mutant[:start] + bytes([byte]) * self._flood() + mutant[start:]
            case _:
                other = others[self.below(len(others))] if others else b""
                return mutant[:start] + other[start : start + 256] + mutant[end:]

    def _flood(self) -> int:
        return _FLOODS[self.below(len(_FLOODS))]
