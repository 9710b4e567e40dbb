"""Texts that a terminal or a reader of logs may be given.

Names of groups, members, clients and topics come from strangers, and a terminal obeys the control
characters in them.
"""

import re

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and the marks that make a terminal show text in another order."""
CONTROLS_OF_A_VALUE = re.compile(CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
"""The same without tabs and line ends, which are a part of text of several lines."""


def printable(text: str) -> str:
    """Return the text with its control characters spelled out, as `\\x1b`."""
    return CONTROLS.sub(spelled, text)


def spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
