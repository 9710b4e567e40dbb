import json
import logging
import re
from collections.abc import Iterator

import pytest

from stratalog.errors import SettingsError
from stratalog.logs import BURST, REPEAT_S, RepeatFilter, configure_logs
from stratalog.settings import LogSettings
from stratalog.settings_source import load_settings

ESCAPES = "\x1b]0;owned\x07\nforged line\u202e"


class Written:
    """The standard error since the last look."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def getvalue(self) -> str:
        return self._capture.readouterr().err


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Written]:
    """The set-up of logs is as it was afterwards."""
    root, names = logging.getLogger(), ("stratalog", "stratalog.janitor")
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in names}
    yield Written(capsys)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def log_of(room: str) -> logging.Logger:
    return logging.getLogger(f"stratalog.{room}")


def test_a_line_has_time_level_room_and_message(written: Written) -> None:
    configure_logs(LogSettings())
    log_of("janitor.sweeper").info("Deleted %d objects.", 3)
    pattern = (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    janitor\.sweeper: Deleted 3 objects\.\n"
    )
    assert re.fullmatch(pattern, written.getvalue())


def test_a_process_that_shares_its_output_names_itself(written: Written) -> None:
    configure_logs(LogSettings(), process="pipeline process")
    log_of("pipeline.driver").warning("Something failed.")
    assert "Z WARNING pipeline process, pipeline.driver: Something" in written.getvalue()


def test_a_json_line_has_the_same_parts(written: Written) -> None:
    configure_logs(LogSettings(format="json"))
    try:
        raise ValueError(ESCAPES)
    except ValueError:
        log_of("block.writer").exception("Failed for %s", ESCAPES)
    (line,) = written.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    parsed = json.loads(line)
    assert (parsed["level"], parsed["logger"]) == ("error", "block.writer")
    assert parsed["message"] == f"Failed for {ESCAPES}"
    assert "ValueError" in parsed["traceback"]


def test_names_that_strangers_chose_cannot_forge_a_line(written: Written) -> None:
    configure_logs(LogSettings())
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        log_of("groups").exception("Group %s is gone", ESCAPES)
    first, *traceback = written.getvalue().splitlines()
    assert first.endswith(r"Group \x1b]0;owned\x07\nforged line\u202e is gone")
    assert traceback[-1] == r"ValueError: \x1b[31mred"


def test_info_is_shown_and_debug_is_not_unless_asked_for(written: Written) -> None:
    configure_logs(LogSettings())
    log_of("janitor").debug("hidden")
    log_of("janitor").info("shown")
    configure_logs(LogSettings(level="warning", levels={"janitor": "debug"}))
    log_of("janitor.sweeper").debug("asked for")
    log_of("kafka").info("hidden too")
    assert [line.rpartition(" ")[2] for line in written.getvalue().splitlines()] == ["shown", "for"]


def test_other_libraries_are_heard_from_warnings_on(written: Written) -> None:
    configure_logs(LogSettings(level="debug"))
    other = logging.getLogger("py4j.java_gateway")
    level = other.level
    other.setLevel(logging.DEBUG)
    other.info("hidden")
    other.warning("shown")
    other.setLevel(level)
    (line,) = written.getvalue().splitlines()
    assert line.endswith("WARNING py4j.java_gateway: shown")


def record(text: str, at_s: float, *, line: int = 1, room: str = "kafka") -> logging.LogRecord:
    made = logging.LogRecord(f"stratalog.{room}", logging.INFO, "a.py", line, text, (), None)
    made.created = at_s
    return made


def test_a_repeated_line_stands_once_and_the_next_one_counts_the_others() -> None:
    repeats = RepeatFilter()
    shown = [repeats.filter(record("same", second)) for second in range(10)]
    assert shown == [True, *[False] * 9]
    later = record("same", REPEAT_S)
    assert repeats.filter(later)
    assert later.getMessage() == "same (9 similar lines were left out)"
    again = record("same", 2 * REPEAT_S)
    assert repeats.filter(again)
    assert again.getMessage() == "same"


def test_one_statement_writes_so_many_lines_in_a_while_and_others_go_on() -> None:
    repeats = RepeatFilter()
    shown = [repeats.filter(record(f"refused {n}", 1.0)) for n in range(BURST + 5)]
    assert shown.count(True) == BURST
    assert repeats.filter(record("another statement", 1.0, line=2))
    assert repeats.filter(record("refused once more", 1.0 + REPEAT_S))


def test_no_line_about_an_order_is_left_out() -> None:
    repeats = RepeatFilter()
    orders = [record("deleted", 1.0, room="admin.topics") for _ in range(3 * BURST)]
    assert all(repeats.filter(order) for order in orders)
    refusals = [record("refused", 1.0, room="admin.entries") for _ in range(3)]
    assert [repeats.filter(one) for one in refusals] == [True, False, False]


def test_levels_and_formats_that_do_not_exist_are_refused() -> None:
    for setting in ("log.level=loud", "log.format=xml", "log.levels.janitor=loud"):
        with pytest.raises(SettingsError, match="must be one of: "):
            load_settings(overrides=[setting], environment={})
    settings = load_settings(overrides=["log.levels.kafka.server=debug"], environment={})
    assert settings.log.levels == {"kafka.server": "debug"}
