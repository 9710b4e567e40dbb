"""An admin whose topics and groups are in SQLite, without a wire."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from stratalog.admin.admin import BrokerAdmin
from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import Right
from stratalog.clock import SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.settings import BrokerSettings, Settings
from stratalog.topic.catalog import TopicCatalog

ALICE = Principal("User", "alice")
SETTINGS = Settings(broker=BrokerSettings(default_partitions=4), topic={"retention.ms": "5000"})


@dataclass
class Doorkeeper(Authorizer):
    """Notes every right that is asked for, and refuses the ones in `refused`."""

    asked: list[tuple[Principal, Right, str]] = field(default_factory=list)
    refused: Callable[[Right, str], bool] = lambda right, name: False

    def allows(self, principal: Principal, right: Right, name: str) -> bool:
        self.asked.append((principal, right, name))
        return not self.refused(right, name)


@dataclass
class Office:
    admin: BrokerAdmin
    control: ControlPlane
    coordinator: GroupCoordinator
    membership: Membership
    doorkeeper: Doorkeeper
    orders: Topic
    """A topic of three partitions."""


@asynccontextmanager
async def opened_office(tmp_path: Path) -> AsyncIterator[Office]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    clock = SystemClock()
    membership = await Membership.join(
        control=control,
        clock=clock,
        broker_id=None,
        host="here",
        port=9,
        rack=None,
        incarnation=uuid4(),
        lease_ms=60_000,
    )
    coordinator = GroupCoordinator(control=control, membership=membership, clock=clock)
    ClassicGroups(coordinator, SETTINGS.groups)
    catalog = TopicCatalog(control=control, clock=clock)
    doorkeeper = Doorkeeper()
    admin = BrokerAdmin(
        control=control,
        catalog=catalog,
        settings=SETTINGS,
        membership=membership,
        groups=coordinator,
        consumer_groups=ConsumerGroups(coordinator, catalog, SETTINGS.groups, clock=clock),
        authorizer=doorkeeper,
    )
    orders = await control.topics.create("orders", partition_count=3, configs={"segment.ms": "77"})
    yield Office(admin, control, coordinator, membership, doorkeeper, orders)
    await coordinator.stop()
    await membership.leave()
    await control.close()
