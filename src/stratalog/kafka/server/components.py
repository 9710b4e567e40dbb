"""The parts of a broker that handlers work with, put together once."""

from dataclasses import dataclass

from stratalog.admin.admin import BrokerAdmin
from stratalog.cluster.live_brokers import LiveBrokers
from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.kafka.fetches.sessions import FetchSessions
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.settings import Settings
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.read import TopicReader


@dataclass(frozen=True, slots=True, kw_only=True)
class DataComponents:
    """The parts that every worker of a broker has: for the handlers that move records."""

    settings: Settings
    metrics: RequestMetrics
    failures: ReadFailures
    fetch_sessions: FetchSessions
    membership: LiveBrokers
    control: ControlPlane
    catalog: TopicCatalog
    appender: TopicAppender
    reader: TopicReader
    offsets: TopicOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Components(DataComponents):
    """The parts of the first worker, which serves all requests."""

    admin: BrokerAdmin
    membership: Membership
    groups: GroupCoordinator
    classic_groups: ClassicGroups
    consumer_groups: ConsumerGroups
