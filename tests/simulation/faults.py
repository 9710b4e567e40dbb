"""Breaks a simulated cluster: calls, processes and clocks, as its random numbers say."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from tests.simulation.loads import Load
from tests.simulation.nodes import Machine
from tests.simulation.replacing import replaced

from stratalog.control.pipeline.model import ClaimToken
from stratalog.control.segments.model import ChainOutcome
from stratalog.errors import OutcomeUnknownError
from stratalog.ids import SegmentId
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.testing.simulation import Fate, Network

_CALLS = {
    Fate.REFUSED: 0.02,
    Fate.LOST_REQUEST: 0.01,
    Fate.LOST_REPLY: 0.015,
    Fate.LATE: 0.015,
}


FAULTS = (
    *(fate.value for fate in Fate if fate is not Fate.FINE),
    "damaged answer",
    "torn file",
    "chain in doubt",
    "kill",
    "pause",
    "clock rate",
    "clock jump",
)
"""Every kind of fault, by the name under which a run counts it."""


class Faults:
    def __init__(
        self, network: Network, machines: Sequence[Machine], load: Load, random: Random
    ) -> None:
        self._load = load
        self._is_healed = False
        self._network = network
        self._machines = machines
        self._random = random
        self._restarts: list[asyncio.Task[None]] = []
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        strength = self._random.choice(self._load.fault_strengths)
        self._network.chances = {fate: chance * strength for fate, chance in _CALLS.items()}
        self._network.chances[Fate.SLOW] = self._random.choice([0.02, 0.25])
        self._network.slow_operations = dict(self._load.slow_operations)
        self._network.damage = self._random.choice(self._load.damage)
        for machine in self._machines:
            machine.clock.set_rate(self._random.uniform(0.98, 1.02))
            self.counts["clock rate"] += 1
        while True:
            await asyncio.sleep(self._random.expovariate(self._load.machine_faults_per_s))
            machine = self._random.choice(self._machines)
            name, fault = self._random.choice(
                [("kill", self._kill), ("pause", self._pause), ("clock jump", self._jump)]
            )
            self.counts[name] += 1
            self._restarts.append(asyncio.create_task(fault(machine)))

    @contextmanager
    def chains_in_doubt(self) -> Iterator[None]:
        """Leave some finished segments unchained, as a driver does that never gets an answer."""
        chain = SegmentFinisher._chain

        async def in_doubt(
            finisher: SegmentFinisher, segment_id: SegmentId, claim: ClaimToken
        ) -> ChainOutcome:
            chance = 0.0 if self._is_healed else self._load.chains_in_doubt
            if chance and self._random.random() < chance:
                self.counts["chain in doubt"] += 1
                raise OutcomeUnknownError("the driver did not hear whether its segment is chained")
            return await chain(finisher, segment_id, claim)

        with replaced(SegmentFinisher, "_chain", in_doubt):
            yield

    def heal(self) -> None:
        self._is_healed = True
        self._network.heal()
        for task in self._restarts:
            task.cancel()
        for machine in self._machines:
            machine.clock.set_rate(1.0)
            machine.process.resume()
            machine.start()

    async def _kill(self, machine: Machine) -> None:
        machine.kill()
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        machine.start()

    async def _pause(self, machine: Machine) -> None:
        process = machine.process
        process.pause()
        await asyncio.sleep(self._random.choice([0.3, 1.0, 2.0, 4.0]))
        process.resume()

    async def _jump(self, machine: Machine) -> None:
        machine.clock.jump(self._random.choice([-8000, -500, 500, 8000]))
