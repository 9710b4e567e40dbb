"""The machines of a simulated cluster, and the two that switch them off: faults and disasters."""

import asyncio

from tests.simulation.nodes import Machine

from stratalog.testing.simulation import NodeClock, run_simulated


def _machine() -> Machine:
    async def idle(_: Machine) -> None:
        await asyncio.sleep(60)

    return Machine("broker 0", NodeClock(), idle)


def test_a_killed_machine_is_started_again() -> None:
    async def run() -> bool:
        machine = _machine()
        machine.start()
        machine.kill()
        machine.start()
        return machine.process.is_dead

    assert not run_simulated(run())


def test_a_fault_does_not_restart_a_machine_that_a_disaster_switched_off() -> None:
    async def run() -> bool:
        machine = _machine()
        machine.start()
        machine.stays_down = True
        machine.kill()
        machine.start()
        return machine.process.is_dead

    assert run_simulated(run())
