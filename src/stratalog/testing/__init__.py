"""Instruments for test suites: a real broker in the test's own process, and doors to stand in.

The names are imported when they are first used: every pytest run on a machine with Stratalog
loads this package for its plugin, and most of them never start a broker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.testing.broker import Broker
    from stratalog.testing.clock import ManualClock

__all__ = ["Broker", "ManualClock"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from stratalog.testing.broker import Broker

        return Broker
    if name == "ManualClock":
        from stratalog.testing.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
