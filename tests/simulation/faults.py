"""Breaks a simulated cluster: calls, processes and clocks, as its random numbers say."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.simulation.nodes import Machine

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
    "kill",
    "pause",
    "clock rate",
    "clock jump",
)
"""Every kind of fault, by the name under which a run counts it."""


class Faults:
    def __init__(self, network: Network, machines: Sequence[Machine], random: Random) -> None:
        self._network = network
        self._machines = machines
        self._random = random
        self._restarts: list[asyncio.Task[None]] = []
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        strength = self._random.choice([0.3, 1.0, 2.0])
        self._network.chances = {fate: chance * strength for fate, chance in _CALLS.items()}
        self._network.chances[Fate.SLOW] = self._random.choice([0.02, 0.25])
        self._network.damage = self._random.choice([0.0, 0.0, 0.02])
        for machine in self._machines:
            machine.clock.set_rate(self._random.uniform(0.98, 1.02))
            self.counts["clock rate"] += 1
        while True:
            await asyncio.sleep(self._random.expovariate(1.8))
            machine = self._random.choice(self._machines)
            name, fault = self._random.choice(
                [("kill", self._kill), ("pause", self._pause), ("clock jump", self._jump)]
            )
            self.counts[name] += 1
            self._restarts.append(asyncio.create_task(fault(machine)))

    def heal(self) -> None:
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
