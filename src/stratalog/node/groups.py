"""The group coordinator of a node, with the groups of both protocols."""

from dataclasses import dataclass

from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.topic.catalog import TopicCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    coordinator: GroupCoordinator
    classic: ClassicGroups
    consumer: ConsumerGroups


async def start_groups(
    parts: Parts,
    ground: Ground,
    control: ControlPlane,
    membership: Membership,
    catalog: TopicCatalog,
) -> Groups:
    settings, clock = ground.settings.groups, ground.clock
    coordinator = GroupCoordinator(
        control=control,
        membership=membership,
        clock=clock,
        max_groups=settings.max_groups,
    )
    # It starts after the membership, and so stops before it: until the broker has left, no other
    # broker may coordinate its groups.
    await parts.start(
        Part(name="the group coordinator", stops_in=Phase.WITHDRAW, stop=coordinator.stop)
    )
    return Groups(
        coordinator=coordinator,
        classic=ClassicGroups(coordinator, settings, entropy=ground.entropy),
        consumer=ConsumerGroups(coordinator, catalog, settings, clock=clock),
    )
