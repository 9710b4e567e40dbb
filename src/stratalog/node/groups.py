"""The group coordinator of a node, with the groups of both protocols."""

from dataclasses import dataclass

from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.groups.abandoned import AbandonedGroups
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.limits import GroupLimits
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
        limits=GroupLimits(settings, clock),
    )
    # It starts after the membership, and so stops before it: until the broker has left, no other
    # broker may coordinate its groups.
    await parts.start(
        Part(name="the group coordinator", stops_in=Phase.WITHDRAW, stop=coordinator.stop)
    )
    abandoned = AbandonedGroups(
        control=control,
        coordinator=coordinator,
        membership=membership,
        clock=clock,
        lease_ms=ground.settings.broker.lease_ms,
    )
    groups = Groups(
        coordinator=coordinator,
        classic=ClassicGroups(coordinator, settings, entropy=ground.entropy),
        consumer=ConsumerGroups(coordinator, catalog, settings, clock=clock),
    )
    # The groups of both protocols are known to the coordinator now, so that any can be loaded.
    await parts.start(
        Part(
            name="the search for abandoned groups",
            stops_in=Phase.END_BACKGROUND,
            start=abandoned.start,
            stop=abandoned.stop,
        )
    )
    return groups
