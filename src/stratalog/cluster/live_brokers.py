"""The live brokers of the cluster as last seen, and the choices among them that all brokers make
alike."""

import hashlib
from collections.abc import Sequence
from uuid import UUID

from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId, TopicPartition


class LiveBrokers:
    """The brokers as one of them sees them."""

    def __init__(self, control: ControlPlane, *, cluster_id: UUID, own: BrokerInfo) -> None:
        self._control = control
        self.cluster_id = cluster_id
        self._own = own
        self._live = [own]
        self._leaders: dict[tuple[TopicPartition, str | None], BrokerInfo] = {}

    @property
    def own(self) -> BrokerInfo:
        """This broker, as it is registered."""
        return self._own

    @property
    def broker_id(self) -> BrokerId:
        return self._own.broker_id

    def live(self) -> list[BrokerInfo]:
        """The brokers that were alive at the last look, by id. This broker is always among them."""
        return self._live

    def others(self) -> list[BrokerInfo]:
        return [broker for broker in self._live if broker.broker_id != self.broker_id]

    def leader_of(self, partition: TopicPartition, zone: str | None = None) -> BrokerInfo:
        """Choose the one broker that Metadata names as the leader of a partition.

        Clients of a zone get a broker of their zone, if it has any. The choice is rendezvous
        hashing: every broker computes the same leader, and a broker that comes or goes moves only
        the partitions that it gains or had.
        """
        key = (partition, self.known_zone(zone))
        leader = self._leaders.get(key)
        if leader is None:
            candidates = self._in_zone(zone) or self._live
            leader = max(candidates, key=lambda broker: _weight(partition, broker.broker_id))
            self._leaders[key] = leader
        return leader

    def nearer_broker(self, partition: TopicPartition, zone: str | None) -> BrokerInfo | None:
        """Choose a nearer broker for a reader in a zone, so that a partition's readers in a zone
        meet at one broker. None if this broker is the right one, or the zone has no broker.

        The partition's leader alone sends readers on, as in Kafka, and always to a broker of less
        weight. So brokers that disagree about the live brokers cannot send a reader in circles.
        """
        if self.known_zone(zone) is None or self.leader_of(partition).broker_id != self.broker_id:
            return None
        nearer = self.leader_of(partition, zone)
        return None if nearer.broker_id == self.broker_id else nearer

    def known_zone(self, zone: str | None) -> str | None:
        """The zone, if a live broker runs in it."""
        return zone if self._in_zone(zone) else None

    def _in_zone(self, zone: str | None) -> list[BrokerInfo]:
        return [broker for broker in self._live if zone and broker.rack == zone]

    async def refresh(self) -> None:
        self._see(await self._control.brokers.all())

    def _see(self, brokers: Sequence[BrokerInfo]) -> None:
        live = [broker for broker in brokers if broker.alive or broker.broker_id == self.broker_id]
        if live != self._live:
            self._live = live
            self._leaders.clear()


class LiveBrokersOfWorker(LiveBrokers):
    """The brokers as seen by a worker that does not hold its broker's lease.

    The first worker may have lost the lease and registered again, under another id. The row of the
    earlier id stays until another broker takes it, with a lease that has ended.
    """

    def _see(self, brokers: Sequence[BrokerInfo]) -> None:
        for broker in brokers:
            if broker.alive and broker.incarnation == self._own.incarnation:
                self._own = broker
        super()._see(brokers)


def _weight(partition: TopicPartition, broker_id: BrokerId) -> bytes:
    name = partition.topic_id.bytes + partition.partition.to_bytes(4) + broker_id.to_bytes(4)
    return hashlib.blake2b(name, digest_size=8).digest()
