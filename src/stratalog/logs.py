"""The log of a process: lines with time, level, room and message, on standard error.

Programs call `configure_logs` once, when their settings are known. A library never does: in a
user's process, `stratalog.read` and the in-process broker leave the set-up of logs alone.

Lines never hold records, keys or secrets. Names that strangers chose have their control characters
spelled out, so that no name can forge a line.
"""

import json
import logging
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from stratalog.printable import CONTROLS_OF_A_VALUE, printable, spelled
from stratalog.settings import LogSettings

_OURS = "stratalog"
_ORDERS = "stratalog.admin"
"""Lines of orders (create, delete, alter) are an account of who did it: none is left out."""
_REFUSALS = "stratalog.admin.entries"
REPEAT_S = 10.0
"""The same line stands in the log once in this time."""
BURST = 50
"""Lines of one statement in that time. One client may cause thousands of refusals a second."""
_REMEMBERED = 1000


def configure_logs(settings: LogSettings, *, process: str = "") -> None:
    """Send the lines of this process to standard error, in place of an earlier set-up.

    `process` is put before the names of rooms, for a process that shares its output with another.
    """
    handler = _Handler()
    handler.setFormatter(_JsonLines(process) if settings.format == "json" else _TextLines(process))
    handler.addFilter(_only_warnings_of_others)
    handler.addFilter(RepeatFilter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _set_level("", settings.level)
    for room, level in settings.levels.items():
        _set_level(room, level)


def _set_level(room: str, level: str) -> None:
    name = f"{_OURS}.{room}" if room else _OURS
    logging.getLogger(name).setLevel(level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the standard error of the moment, which a progress bar may have replaced."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _only_warnings_of_others(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or _is_ours(record)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == _OURS or record.name.startswith(f"{_OURS}.")


@dataclass(slots=True)
class _Seen:
    since_s: float
    count: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Leaves out lines that say the same as a line shortly before, or that are one of very many.

    The next line of the same statement says how many were left out. It goes by the records' own
    times.
    """

    def __init__(self) -> None:
        super().__init__()
        self._texts: OrderedDict[tuple[str, int, str], float] = OrderedDict()
        self._places: OrderedDict[tuple[str, int], _Seen] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_ORDERS) and record.name != _REFUSALS:
            return True
        place = (record.pathname, record.lineno)
        seen = self._seen(place, record.created)
        if self._is_repeat((*place, record.getMessage()), record.created) or seen.count >= BURST:
            seen.left_out += 1
            return False
        seen.count += 1
        if seen.left_out:
            record.msg = f"{record.getMessage()} ({seen.left_out} similar lines were left out)"
            record.args = ()
            seen.left_out = 0
        return True

    def _seen(self, place: tuple[str, int], now_s: float) -> _Seen:
        seen = self._places.setdefault(place, _Seen(now_s))
        if now_s - seen.since_s >= REPEAT_S:
            seen.since_s, seen.count = now_s, 0
        _forget(self._places)
        return seen

    def _is_repeat(self, text: tuple[str, int, str], now_s: float) -> bool:
        last_s = self._texts.get(text)
        if last_s is not None and now_s - last_s < REPEAT_S:
            return True
        self._texts[text] = now_s
        self._texts.move_to_end(text)
        _forget(self._texts)
        return False


def _forget(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)


class _Lines(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._prefix = f"{process}, " if process else ""

    def _name(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(f"{_OURS}.")
        return self._prefix + ("main" if name in ("root", "__main__", _OURS) else name)

    def _traceback(self, record: logging.LogRecord) -> str | None:
        if not record.exc_info or record.exc_info[0] is None:
            return None
        return CONTROLS_OF_A_VALUE.sub(spelled, self.formatException(record.exc_info))


class _TextLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(record.getMessage())
        head = f"{_time(record)} {record.levelname:<7} {self._name(record)}"
        traceback = self._traceback(record)
        return f"{head}: {message}" + (f"\n{traceback}" if traceback else "")


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": self._name(record),
            # JSON spells control characters out by itself.
            "message": record.getMessage(),
        }
        traceback = self._traceback(record)
        return json.dumps(line | ({"traceback": traceback} if traceback else {}))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
