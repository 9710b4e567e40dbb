"""The far side of every door: database, store, network, and the settings of all nodes."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.objects.retrying import RetryingStore, RetryPolicy
from stratalog.objects.store import ObjectStore
from stratalog.settings import Settings
from stratalog.testing.simulation import Network, Process, SimulatedDatabase, SimulatedStore


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    database: Database
    store: ObjectStore
    holds: Callable[[str], bool]
    """Tells whether the store has an object, without a call over the network."""
    network: Network
    settings: Settings
    random: Random

    def control_for(self, process: Process) -> ControlPlane:
        database = SimulatedDatabase(self.database, process, self.network)
        return ControlPlane(database, self.entropy(), process.clock)

    def store_for(self, process: Process) -> ObjectStore:
        door = SimulatedStore(self.store, process, self.network)
        return RetryingStore(
            door, clock=process.clock, entropy=self.entropy(), policy=RetryPolicy()
        )

    def entropy(self) -> Callable[[int], bytes]:
        return Random(self.random.random()).randbytes
