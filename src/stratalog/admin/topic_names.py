"""The names that a topic may have, by Kafka's rules."""

import re
from collections.abc import Iterable

from stratalog.admin.errors import InvalidTopicNameError

_LONGEST = 249
"""A name, a dash, a partition and a suffix fit into a file name."""
_KRAFT_LOG = "__cluster_metadata"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    if not name:
        raise InvalidTopicNameError("a topic name cannot be empty")
    if name == _KRAFT_LOG:
        raise InvalidTopicNameError(f"a topic cannot be called {name}, the name of Kafka's own log")
    if name in (".", ".."):
        raise InvalidTopicNameError(f"a topic cannot be called {name!r}")
    if len(name) > _LONGEST:
        raise InvalidTopicNameError(
            f"a topic name has at most {_LONGEST} characters, not {len(name)}"
        )
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicNameError(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_', '-'"
        )


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def check_no_collision(name: str, others: Iterable[str]) -> None:
    """Kafka refuses names that differ only in '.' and '_': its metrics cannot tell them apart."""
    plain = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == plain:
            raise InvalidTopicNameError(f"topic {name!r} collides with existing topic {other!r}")
