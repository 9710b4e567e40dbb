import io
import json
import sys

import pytest
from rich.markup import escape

from stratalog.cli import output

HOSTILE = "\x1b]0;owned\x07\x1b[31mRED\x9b0m\r\nforged\u202e\x7f"
SPELLED = r"\x1b]0;owned\x07\x1b[31mRED\x9b0m\r\nforged\u202e\x7f"


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def written(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def test_a_table_spells_control_characters_out(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["group", "state"], [[HOSTILE, "Stable"], ["plain ü", "Empty"]])
    header, hostile, plain = capsys.readouterr().out.splitlines()
    assert hostile == f"{SPELLED}  Stable"
    assert plain.index("Empty") == header.index("STATE") == hostile.index("Stable")
    assert plain.startswith("plain ü ")


def test_messages_and_errors_spell_control_characters_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.say(f"[bold]Deleted[/] {escape(HOSTILE)}.")
    output.note(escape(HOSTILE))
    output.print_error(ValueError("\x1b[31mRED"))
    written = capsys.readouterr()
    assert written.out == f"Deleted {SPELLED}.\n"
    assert written.err == f"{SPELLED}\nerror: \\x1b[31mRED\n"


def test_a_message_keeps_the_empty_lines_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("\nhead\n")
    output.say("\n")
    assert capsys.readouterr().out == "\nhead\n\n\n\n"


def test_json_stays_json_and_holds_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_json({"group": HOSTILE})
    written = capsys.readouterr().out
    assert json.loads(written) == {"group": HOSTILE}
    assert written.removesuffix("\n").isprintable()


def test_record_bytes_are_printable_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    value = b'{\n\t"a": "\x1b[31m\xff"}'
    output.print_bytes(value)
    assert capsysbinary.readouterr().out == value + b"\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    output.print_bytes(value)
    assert terminal.written() == '{\n\t"a": "\\x1b[31m\\xff"}\n'
