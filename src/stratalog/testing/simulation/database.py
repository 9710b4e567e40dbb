"""The database as one process reaches it, over a network."""

from functools import partial
from typing import TypeVar

from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.sql.database import Database, Work
from stratalog.testing.simulation.network import Network
from stratalog.testing.simulation.process import Process

T = TypeVar("T")


class SimulatedDatabase:
    """Implements `Database`. A transaction takes effect as a whole, when its request arrives."""

    def __init__(self, inner: Database, process: Process, network: Network) -> None:
        self._inner = inner
        self._process = process
        self._network = network

    @property
    def url(self) -> str:
        return self._inner.url

    async def read(self, work: Work[T]) -> T:
        return await self._network.call(
            self._process,
            "database",
            f"read {_name(work)}",
            lambda: self._inner.read(work),
            refused=ControlUnavailableError,
            unknown=ControlUnavailableError,
        )

    async def write(self, work: Work[T]) -> T:
        return await self._network.call(
            self._process,
            "database",
            f"write {_name(work)}",
            lambda: self._inner.write(work),
            refused=ControlUnavailableError,
            unknown=CommitInDoubtError,
        )

    async def close(self) -> None:
        """Leave the database itself open: other processes use it."""


def _name(work: Work[T]) -> str:
    """Name a transaction after the function that made it, for traces and for chosen faults."""
    function = work.func if isinstance(work, partial) else work
    return str(getattr(function, "__qualname__", "")).replace(".<locals>.", ".")
