"""Membership of the cluster: this broker's registration and its lease.

Losing the lease does no harm to data: the control plane fences commits, the lease does not. It may
cost the broker its id: the broker then registers again, under another id if its own was taken.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from stratalog.clock import Clock
from stratalog.cluster.live_brokers import LiveBrokers
from stratalog.control.brokers.errors import AddressTakenError
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.ids import BrokerId

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3


class Membership(LiveBrokers):
    def __init__(
        self,
        *,
        control: ControlPlane,
        clock: Clock,
        cluster_id: UUID,
        incarnation: UUID,
        lease_ms: int,
        registration: BrokerInfo,
    ) -> None:
        super().__init__(control, cluster_id=cluster_id, own=registration)
        self._clock = clock
        self._incarnation = incarnation
        self._lease_ms = lease_ms
        self._renewer: asyncio.Task[None] | None = None
        self._sure_until_s = clock.monotonic() + lease_ms / 1000
        self._left = False
        self.lease_number = 1
        """Grows whenever the lease may have ended, so that others may have taken this broker for
        dead meanwhile."""

    @classmethod
    async def join(
        cls,
        *,
        control: ControlPlane,
        clock: Clock,
        broker_id: BrokerId | None,
        host: str,
        port: int,
        rack: str | None,
        incarnation: UUID,
        lease_ms: int,
        socket_name: str | None = None,
    ) -> "Membership":
        """Register this broker and start renewing its lease."""
        asked_s = clock.monotonic()

        async def register() -> BrokerInfo:
            nonlocal asked_s
            asked_s = clock.monotonic()
            return await control.brokers.register(
                broker_id,
                host=host,
                port=port,
                rack=rack,
                incarnation=incarnation,
                lease_ms=lease_ms,
                socket_name=socket_name,
            )

        registration = await _register_when_free(register, clock, lease_ms)
        cluster = await control.identity.cluster()
        membership = cls(
            control=control,
            clock=clock,
            cluster_id=cluster.cluster_id,
            incarnation=incarnation,
            lease_ms=lease_ms,
            registration=registration,
        )
        membership._sure_until_s = asked_s + lease_ms / 1000
        await membership.refresh()
        membership._renewer = asyncio.create_task(membership._renew_for_ever(), name="membership")
        return membership

    @property
    def incarnation(self) -> UUID:
        return self._incarnation

    @property
    def is_surely_alive(self) -> bool:
        """Tell whether the lease certainly lasts, so that no broker takes this one for dead.

        The lease is counted from the moment when its renewal was sent. The database counts from a
        later one.
        """
        return not self._left and self._clock.monotonic() < self._sure_until_s

    def coordinator_of(self, group_id: str) -> BrokerInfo:
        """Choose the broker that should coordinate a group without a coordinator."""
        live = self.live()
        candidates = (self.others() if self._left else live) or live
        return max(candidates, key=lambda broker: _group_weight(group_id, broker.broker_id))

    async def leave(self) -> None:
        """Stop renewing and take this broker off the list, so that clients go elsewhere at once."""
        self._left = True
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
        try:
            await self._control.brokers.remove(self.broker_id, self._incarnation)
        except StratalogError as error:
            log.warning("This broker stays listed until its lease expires: %s", error)

    async def _renew_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._lease_ms / RENEWALS_PER_LEASE / 1000)
            try:
                await self._renew()
                await self.refresh()
            except StratalogError as error:
                log.warning("The broker's lease was not renewed, trying again: %s", error)
            except Exception:
                # A mistake must not end the renewals: the broker would serve on, listed nowhere.
                log.exception("The broker's lease was not renewed, trying again")

    async def _renew(self) -> None:
        asked_s = self._clock.monotonic()
        renewed = await self._control.brokers.renew(
            self.broker_id, self._incarnation, lease_ms=self._lease_ms
        )
        if not renewed:
            self._sure_until_s = asked_s
            asked_s = self._clock.monotonic()
            await self._register_again()
        if self._clock.monotonic() >= self._sure_until_s:
            self.lease_number += 1
            log.warning(
                "The lease of broker %d had ended, and begins anew: its groups may have moved.",
                self.broker_id,
            )
        self._sure_until_s = asked_s + self._lease_ms / 1000

    async def _register_again(self) -> None:
        log.error(
            "Broker id %d was taken by another process, or its lease has ended; registering again",
            self.broker_id,
        )
        self._own = await self._control.brokers.register(
            None,
            host=self._own.host,
            port=self._own.port,
            rack=self._own.rack,
            incarnation=self._incarnation,
            lease_ms=self._lease_ms,
            socket_name=self._own.socket_name,
        )


async def _register_when_free(
    register: Callable[[], Awaitable[BrokerInfo]], clock: Clock, lease_ms: int
) -> BrokerInfo:
    """Register once no other broker is at the address.

    A broker that died left a lease, which is waited out. One that renews its lease is alive, and
    the address is a mistake of the settings, which waiting would not solve.
    """
    seen: AddressTakenError | None = None
    while True:
        try:
            return await register()
        except AddressTakenError as error:
            if seen is not None and error.renewals != seen.renewals:
                raise
            if seen is None:
                log.warning("Waiting for the other broker's lease to end: %s", error)
            seen = error
            await clock.sleep(lease_ms / RENEWALS_PER_LEASE / 1000)


def _group_weight(group_id: str, broker_id: BrokerId) -> bytes:
    name = group_id.encode() + broker_id.to_bytes(4)
    return hashlib.blake2b(name, digest_size=8).digest()
