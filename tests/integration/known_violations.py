"""Settings and brokers for the tests of failures that are known from other systems."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from tests.support.clients.confluent_client import (
    confluent_consumer,
)
from tests.support.clients.group_members import wait_until
from tests.support.clusters import (
    BASE,
    Cluster,
)

from stratalog.settings import BlockSettings, GroupsSettings, JanitorSettings

NONE = ErrorCode.none
TIDY = replace(
    BASE,
    janitor=JanitorSettings(
        interval_ms=60, grace_ms=0, backup_window_ms=0, retention_window_ms=0, chunk_rows=3
    ),
    groups=GroupsSettings(initial_rebalance_delay_ms=0),
    topic={"retention.ms": "-1"},
)
"""The janitor is always at work, a few rows at a time. Records with times set by hand count as
old."""
IMPATIENT = replace(
    BASE,
    block=BlockSettings(window_ms=5, retry_ms=200),
    groups=GroupsSettings(initial_rebalance_delay_ms=0),
)
"""A block is given up soon, so that an outage is seen by the producers."""


@contextmanager
def member_of(cluster: Cluster, group: str, topic: str) -> Iterator[Any]:
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    with closing(confluent_consumer(cluster.bootstrap, **settings)) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2)
        yield consumer
