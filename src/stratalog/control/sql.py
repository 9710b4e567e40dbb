"""The control plane over an SQL database: the operations, put together."""

from stratalog.control.adoption import AdoptionOperations
from stratalog.control.aged import AgedOperations
from stratalog.control.brokers import BrokerOperations
from stratalog.control.chain import ChainOperations
from stratalog.control.claims import ClaimOperations
from stratalog.control.cluster import ClusterOperations
from stratalog.control.commits import CommitOperations
from stratalog.control.dead_objects import DeadObjectOperations
from stratalog.control.deletes import DeleteOperations
from stratalog.control.epochs import EpochOperations
from stratalog.control.exports import ExportOperations
from stratalog.control.group_offsets import GroupOffsetOperations
from stratalog.control.groups import GroupOperations
from stratalog.control.leases import LeaseOperations
from stratalog.control.migration import MigrationOperations
from stratalog.control.objects import ObjectOperations
from stratalog.control.partitions import PartitionOperations
from stratalog.control.producers import ProducerOperations
from stratalog.control.purge import PurgeOperations
from stratalog.control.reads import ReadOperations
from stratalog.control.resting import RestingOperations
from stratalog.control.retention import RetentionOperations
from stratalog.control.runs import RunOperations
from stratalog.control.scans import ScanOperations
from stratalog.control.segments import SegmentOperations
from stratalog.control.sinks import SinkOperations
from stratalog.control.splits import SplitOperations
from stratalog.control.tier_status import TierStatusOperations
from stratalog.control.topic_orders import TopicOrderOperations
from stratalog.control.topics import TopicOperations


class SqlControlPlane(
    ClusterOperations,
    BrokerOperations,
    TopicOperations,
    PurgeOperations,
    PartitionOperations,
    CommitOperations,
    ProducerOperations,
    ReadOperations,
    EpochOperations,
    DeleteOperations,
    RetentionOperations,
    ObjectOperations,
    SegmentOperations,
    ExportOperations,
    ChainOperations,
    AdoptionOperations,
    MigrationOperations,
    AgedOperations,
    ClaimOperations,
    SplitOperations,
    DeadObjectOperations,
    RestingOperations,
    RunOperations,
    TopicOrderOperations,
    TierStatusOperations,
    ScanOperations,
    LeaseOperations,
    SinkOperations,
    GroupOperations,
    GroupOffsetOperations,
):
    """Implements `ControlPlane`. Every call is one transaction, or a few that say so."""

    @property
    def url(self) -> str:
        return self._database.url

    async def close(self) -> None:
        await self._database.close()
