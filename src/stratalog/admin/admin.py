"""The operations of an admin and their rules, by noun. Every operation is given a principal.

Results are plain values. Errors are `StratalogError`s, and the category of an error tells the
caller how to go on. Kafka handlers, the command line and other interfaces translate both, and have
no rules of their own.
"""

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.brokers import BrokerRegistrations
from stratalog.admin.cluster_settings import ClusterSettingsAdmin
from stratalog.admin.configs import ConfigAdmin
from stratalog.admin.deleted_topics import DeletedTopicAdmin
from stratalog.admin.dry_runs import DryRunAdmin
from stratalog.admin.group_configs import GroupConfigAdmin
from stratalog.admin.groups import GroupAdmin
from stratalog.admin.lost_ranges import LostRangeAdmin
from stratalog.admin.migration import MigrationAdmin
from stratalog.admin.partitions import PartitionAdmin
from stratalog.admin.records import RecordAdmin
from stratalog.admin.segments import SegmentAdmin
from stratalog.admin.tiering import TieringAdmin
from stratalog.admin.topics import TopicAdmin
from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.recovery.deletion_notes import DeletionNotes
from stratalog.settings import Settings
from stratalog.topic.catalog import TopicCatalog


class Admin:
    """The operations that need the control plane alone, and no running broker."""

    def __init__(
        self,
        *,
        control: ControlPlane,
        catalog: TopicCatalog,
        settings: Settings,
        notes: DeletionNotes | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """Without notes, a restore of the control plane brings later deletions back."""
        self.authorizer = authorizer or Authorizer()
        self.topics = TopicAdmin(
            control=control,
            catalog=catalog,
            settings=settings,
            notes=notes,
            authorizer=self.authorizer,
        )
        self.cluster_settings = ClusterSettingsAdmin(control=control, authorizer=self.authorizer)
        self.deleted_topics = DeletedTopicAdmin(
            control=control, notes=notes, authorizer=self.authorizer
        )
        self.records = RecordAdmin(
            control=control, catalog=catalog, notes=notes, authorizer=self.authorizer
        )
        self.migration = MigrationAdmin(
            control=control, topics=self.topics, authorizer=self.authorizer
        )
        self.segments = SegmentAdmin(
            control=control, topics=self.topics, authorizer=self.authorizer
        )
        self.dry_runs = DryRunAdmin(control=control, authorizer=self.authorizer)
        self.lost_ranges = LostRangeAdmin(
            control=control, topics=self.topics, authorizer=self.authorizer
        )
        self.tiering = TieringAdmin(control=control, topics=self.topics, authorizer=self.authorizer)


class BrokerAdmin(Admin):
    """All operations, as a running broker offers them."""

    def __init__(
        self,
        *,
        control: ControlPlane,
        catalog: TopicCatalog,
        settings: Settings,
        membership: Membership,
        groups: GroupCoordinator,
        consumer_groups: ConsumerGroups,
        shared_settings: ClusterSettings | None = None,
        notes: DeletionNotes | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(
            control=control,
            catalog=catalog,
            settings=settings,
            notes=notes,
            authorizer=authorizer,
        )
        self.brokers = BrokerRegistrations(
            control=control, membership=membership, authorizer=self.authorizer
        )
        self.configs = ConfigAdmin(
            catalog=catalog,
            membership=membership,
            settings=settings,
            dry_runs=self.dry_runs,
            groups=GroupConfigAdmin(
                control=control, settings=settings.groups, authorizer=self.authorizer
            ),
            shared_settings=shared_settings or ClusterSettings(control, settings),
            authorizer=self.authorizer,
        )
        self.partitions = PartitionAdmin(
            control=control, catalog=catalog, membership=membership, authorizer=self.authorizer
        )
        self.groups = GroupAdmin(
            coordinator=groups,
            consumer_groups=consumer_groups,
            catalog=catalog,
            authorizer=self.authorizer,
        )
