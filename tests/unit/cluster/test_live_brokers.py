"""A worker without a lease follows its broker, whose id may change."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.ledgers import ControlWrapper

from stratalog.cluster.live_brokers import LiveBrokersOfWorker
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId

OWN = BrokerInfo(
    broker_id=BrokerId(3), host="here", port=1, rack=None, incarnation=uuid4(), alive=True
)
OTHER = replace(OWN, broker_id=BrokerId(0), host="there", incarnation=uuid4())


class Listed(ControlWrapper):
    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.brokers_listed: Sequence[BrokerInfo] = [OTHER, OWN]

    async def brokers_all(self) -> list[BrokerInfo]:
        return list(self.brokers_listed)


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Listed]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield Listed(plane)
    await plane.close()


@pytest.fixture
def brokers(control: Listed) -> LiveBrokersOfWorker:
    return LiveBrokersOfWorker(control, cluster_id=uuid4(), own=OWN)


async def test_the_broker_and_the_others_are_seen(brokers: LiveBrokersOfWorker) -> None:
    await brokers.refresh()
    assert brokers.broker_id == OWN.broker_id
    assert brokers.others() == [OTHER]


@pytest.mark.parametrize("new_id", [1, 7])
async def test_a_broker_that_registered_again_is_followed(
    control: Listed, brokers: LiveBrokersOfWorker, new_id: int
) -> None:
    again = replace(OWN, broker_id=BrokerId(new_id))
    rows = [OTHER, replace(OWN, alive=False), again]
    control.brokers_listed = sorted(rows, key=lambda broker: broker.broker_id)
    await brokers.refresh()
    assert brokers.own == again
    assert brokers.live() == [OTHER, again]


async def test_a_broker_whose_lease_has_ended_keeps_its_id_until_it_has_another(
    control: Listed, brokers: LiveBrokersOfWorker
) -> None:
    silent = replace(OWN, alive=False)
    control.brokers_listed = [OTHER, silent]
    await brokers.refresh()
    assert brokers.broker_id == OWN.broker_id
    assert brokers.live() == [OTHER, silent]
