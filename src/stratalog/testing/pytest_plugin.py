"""The fixture `stratalog_broker`, for every suite that has Stratalog installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stratalog.testing.broker import Broker


@pytest.fixture
def stratalog_broker() -> "Iterator[Broker]":
    """A broker of the test's own, empty at its start, at `stratalog_broker.bootstrap`."""
    # Imported here because every pytest run loads this plugin, and few of them use it.
    from stratalog.testing.broker import Broker

    with Broker() as broker:
        yield broker
