"""The place of a node in its cluster: its registration, and the hints between brokers."""

from collections.abc import Awaitable

from stratalog.cluster.hint_seal import HintSeal
from stratalog.cluster.hints import Hints, OnHint
from stratalog.cluster.membership import Membership
from stratalog.cluster.socket_name import socket_name
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId, new_uuid
from stratalog.kafka.server.server import Address
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.patience import patiently
from stratalog.node.phases import Phase


async def join_cluster(
    parts: Parts,
    ground: Ground,
    control: ControlPlane,
    advertised: Address,
    bound: Address | None = None,
) -> Membership:
    """Register the broker under the address that clients shall use, and keep its lease. A broker
    without a bound socket cannot tell its dead predecessor from a live broker."""
    settings = ground.settings.broker
    incarnation = new_uuid(ground.entropy)

    def join() -> Awaitable[Membership]:
        return Membership.join(
            control=control,
            clock=ground.clock,
            broker_id=None if settings.id is None else BrokerId(settings.id),
            host=advertised.host,
            port=advertised.port,
            rack=settings.rack,
            incarnation=incarnation,
            lease_ms=settings.lease_ms,
            socket_name=None if bound is None else socket_name(*bound),
        )

    membership = await patiently("The control plane", join, ground.clock)
    await parts.start(Part(name="the membership", stops_in=Phase.WITHDRAW, stop=membership.leave))
    return membership


async def start_hints(
    parts: Parts,
    ground: Ground,
    control: ControlPlane,
    membership: Membership,
    bound: Address,
    *,
    on_hint: OnHint,
) -> Hints:
    key = await patiently("The control plane", control.identity.hint_key, ground.clock)
    seal = HintSeal(key=key, cluster_id=membership.cluster_id, incarnation=membership.incarnation)
    hints = Hints(seal=seal, others=membership.others, on_hint=on_hint, metrics=ground.metrics)
    await parts.start(
        Part(
            name="the hints",
            stops_in=Phase.RELEASE,
            start=lambda: hints.start(*bound),
            stop=hints.close,
        )
    )
    return hints
