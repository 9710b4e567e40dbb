"""The retention of topics, by their configs, the cluster's defaults, and the limits before them.

Deletion forgives: for a window after a limit was lowered, the one before still counts. So the
largest limit that was in force since the window began decides, and one that is raised back in time
loses nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from stratalog.control.earlier_values import EarlierValue
from stratalog.control.topics.model import RETENTION_CONFIGS, Topic
from stratalog.janitor.retention import Retention, RetentionOf
from stratalog.topic.configs import TopicConfig, effective
from stratalog.topic_configs import DEFINITIONS

_MS, _BYTES = RETENTION_CONFIGS
_NEVER_MS = 1 << 62


def retention_by(
    defaults: Mapping[str, str],
    *,
    earlier_defaults: Mapping[str, Sequence[EarlierValue]] | None = None,
    window_began_ms: int = _NEVER_MS,
) -> RetentionOf:
    """Return the retention by these defaults, and by the limits that ended after the window began:
    without a window, by the present limits alone."""

    def values(topic: Topic, name: str) -> set[str]:
        given = {topic.configs.get(name)} | {
            entry.value
            for entry in topic.earlier_retention.get(name, ())
            if entry.until_ms > window_began_ms
        }
        chosen = {value for value in given if value is not None}
        if None in given:
            chosen.add(defaults.get(name, DEFINITIONS[name].default))
            chosen |= {
                entry.value
                for entry in (earlier_defaults or {}).get(name, ())
                if entry.value is not None and entry.until_ms > window_began_ms
            }
        return chosen

    def retention_of(topic: Topic) -> Retention:
        return Retention(
            ms=_largest(values(topic, _MS), _MS, lambda config: config.retention_ms),
            bytes=_largest(values(topic, _BYTES), _BYTES, lambda config: config.retention_bytes),
        )

    return retention_of


def _largest(
    values: set[str], name: str, limit_of: Callable[[TopicConfig], int | None]
) -> int | None:
    """Return the largest of the limits; None, which is for ever, is larger than any number."""
    largest = 0
    for value in values:
        limit = limit_of(effective({}, {name: value}))
        if limit is None:
            return None
        largest = max(largest, limit)
    return largest
