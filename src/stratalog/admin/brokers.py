"""Brokers as an admin sees them."""

import logging
from collections.abc import Sequence

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from stratalog.cluster.membership import Membership
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId

log = logging.getLogger(__name__)


class BrokerRegistrations:
    def __init__(
        self, *, control: ControlPlane, membership: Membership, authorizer: Authorizer
    ) -> None:
        self._control = control
        self._membership = membership
        self._authorizer = authorizer

    async def all(self, principal: Principal) -> Sequence[BrokerInfo]:
        """Return all registered brokers, also the dead ones, which Kafka calls fenced."""
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER)
        return await self._control.brokers.all()

    async def unregister(self, principal: Principal, broker_id: BrokerId) -> None:
        """Forget a broker that has stopped. One whose lease has not ended is refused."""
        self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER)
        await self._control.brokers.unregister(broker_id)
        await self._membership.refresh()
        log.warning("%s unregistered broker %d.", principal.with_client, broker_id)
