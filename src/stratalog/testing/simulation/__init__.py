"""Instruments for deterministic simulation: virtual time, processes that die, faulty doors.

One seed decides the order of everything. Nothing here waits for a real clock, a thread or a socket.
"""

from stratalog.testing.simulation.clock import NodeClock
from stratalog.testing.simulation.database import SimulatedDatabase
from stratalog.testing.simulation.errors import DeadlockError
from stratalog.testing.simulation.folder import SimulatedFolder
from stratalog.testing.simulation.loop import SimulatedLoop, run_simulated
from stratalog.testing.simulation.memory_store import MemoryStore
from stratalog.testing.simulation.network import Call, Fate, Network
from stratalog.testing.simulation.process import Process
from stratalog.testing.simulation.store import SimulatedStore

__all__ = [
    "Call",
    "DeadlockError",
    "Fate",
    "MemoryStore",
    "Network",
    "NodeClock",
    "Process",
    "SimulatedDatabase",
    "SimulatedFolder",
    "SimulatedLoop",
    "SimulatedStore",
    "run_simulated",
]
