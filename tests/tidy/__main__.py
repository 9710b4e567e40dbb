"""Prints the counts of the tidy test, and lowers the recorded ones."""

import sys
from pathlib import Path

from tests.tidy import __doc__ as usage
from tests.tidy import code
from tests.tidy.ratchet import load, lowered, measure
from tests.tidy.rooms import room_of
from tests.tidy.words import Counted, count_files, count_rooms, counted_sentences

_ROW = "{:44} {:>7} {:>6} {:>6} {:>7}"


def _print_counts(counts: dict[str, Counted]) -> None:
    print(_ROW.format("", "words", "what‰", "starts", "avoided"))
    for name, counted in [*counts.items(), ("all", sum(counts.values(), Counted()))]:
        numbers = (counted.words, counted.what_rate, counted.starts, counted.avoided)
        print(_ROW.format(name, *numbers))


def _print_files(room: str | None) -> None:
    files = {path: counted for path, counted in count_files().items() if _is_in(path, room)}
    worst = sorted(files.items(), key=lambda item: -item[1].whats - item[1].avoided)
    _print_counts({str(path): counted for path, counted in worst})


def _is_in(path: Path, room: str | None) -> bool:
    return room is None or room_of(path) == room or path.is_relative_to(room)


def _print_sentences(room: str | None) -> None:
    for sentence in counted_sentences():
        if _is_in(sentence.path, room):
            print(f"{sentence.path}:{sentence.line}: {sentence.text}")


def _print_code() -> None:
    for path, lines in code.long_files().items():
        print(f"{path}: {lines} lines")
    for name, lines in code.long_functions().items():
        print(f"{name}: a function of {lines} lines")
    for name, place in sorted(code.misplaced_errors().items(), key=lambda item: item[1]):
        print(f"{place}: {name} stands outside errors.py")
    for importer, names in code.imports_of_tests().items():
        print(f"{importer} imports {', '.join(names)}")


def main(arguments: list[str]) -> None:
    command, room = (*arguments, None, None)[:2]
    if command is None:
        _print_counts(count_rooms())
    elif command == "files":
        _print_files(room)
    elif command == "lines":
        _print_sentences(room)
    elif command == "code":
        _print_code()
    elif command == "lower":
        lowered(load(), measure(), room).write()
    else:
        sys.exit(usage)


if __name__ == "__main__":
    main(sys.argv[1:])
