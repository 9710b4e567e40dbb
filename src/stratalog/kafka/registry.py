"""Which handler serves which API."""

from stratalog.clock import Clock
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.dispatch import Dispatcher
from stratalog.kafka.handlers.alter_configs import (
    AlterConfigsHandler,
    IncrementalAlterConfigsHandler,
)
from stratalog.kafka.handlers.api_versions import ApiVersionsHandler
from stratalog.kafka.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from stratalog.kafka.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from stratalog.kafka.handlers.create_partitions import CreatePartitionsHandler
from stratalog.kafka.handlers.create_topics import CreateTopicsHandler
from stratalog.kafka.handlers.delete_groups import DeleteGroupsHandler
from stratalog.kafka.handlers.delete_records import DeleteRecordsHandler
from stratalog.kafka.handlers.delete_topics import DeleteTopicsHandler
from stratalog.kafka.handlers.describe_cluster import DescribeClusterHandler
from stratalog.kafka.handlers.describe_configs import DescribeConfigsHandler
from stratalog.kafka.handlers.describe_groups import DescribeGroupsHandler
from stratalog.kafka.handlers.describe_log_dirs import DescribeLogDirsHandler
from stratalog.kafka.handlers.describe_producers import DescribeProducersHandler
from stratalog.kafka.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from stratalog.kafka.handlers.elect_leaders import ElectLeadersHandler
from stratalog.kafka.handlers.fetch import FetchHandler
from stratalog.kafka.handlers.find_coordinator import FindCoordinatorHandler
from stratalog.kafka.handlers.heartbeat import HeartbeatHandler
from stratalog.kafka.handlers.init_producer_id import InitProducerIdHandler
from stratalog.kafka.handlers.join_group import JoinGroupHandler
from stratalog.kafka.handlers.leave_group import LeaveGroupHandler
from stratalog.kafka.handlers.list_config_resources import ListConfigResourcesHandler
from stratalog.kafka.handlers.list_groups import ListGroupsHandler
from stratalog.kafka.handlers.list_offsets import ListOffsetsHandler
from stratalog.kafka.handlers.metadata import MetadataHandler
from stratalog.kafka.handlers.offset_commit import OffsetCommitHandler
from stratalog.kafka.handlers.offset_delete import OffsetDeleteHandler
from stratalog.kafka.handlers.offset_fetch import OffsetFetchHandler
from stratalog.kafka.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from stratalog.kafka.handlers.partition_reassignments import (
    AlterPartitionReassignmentsHandler,
    ListPartitionReassignmentsHandler,
)
from stratalog.kafka.handlers.produce import ProduceHandler
from stratalog.kafka.handlers.sync_group import SyncGroupHandler
from stratalog.kafka.metrics import RequestMetrics
from stratalog.kafka.read_failures import ReadFailures
from stratalog.kafka.topic_creation import TopicCreation
from stratalog.metrics import Metrics


def dispatcher(components: Components, *, clock: Clock, metrics: Metrics) -> Dispatcher:
    """What a broker gives to `Server.start`."""
    counted = RequestMetrics(metrics)
    creation = TopicCreation(components)
    failures = ReadFailures(clock)
    return Dispatcher(
        produce=ProduceHandler(components, counted),
        handlers={
            ApiKey.FETCH: FetchHandler(components, counted, failures),
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(components, failures),
            ApiKey.METADATA: MetadataHandler(components, creation),
            ApiKey.OFFSET_COMMIT: OffsetCommitHandler(components),
            ApiKey.OFFSET_FETCH: OffsetFetchHandler(components),
            ApiKey.OFFSET_DELETE: OffsetDeleteHandler(components),
            ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(components),
            ApiKey.JOIN_GROUP: JoinGroupHandler(components),
            ApiKey.SYNC_GROUP: SyncGroupHandler(components),
            ApiKey.HEARTBEAT: HeartbeatHandler(components),
            ApiKey.LEAVE_GROUP: LeaveGroupHandler(components),
            ApiKey.LIST_GROUPS: ListGroupsHandler(components),
            ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(components),
            ApiKey.DELETE_GROUPS: DeleteGroupsHandler(components),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(components),
            ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeHandler(components),
            ApiKey.API_VERSIONS: ApiVersionsHandler(),
            ApiKey.CREATE_TOPICS: CreateTopicsHandler(components, creation),
            ApiKey.DELETE_TOPICS: DeleteTopicsHandler(components),
            ApiKey.DELETE_RECORDS: DeleteRecordsHandler(components),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(components),
            ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(components),
            ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(components),
            ApiKey.ALTER_CONFIGS: AlterConfigsHandler(components),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsHandler(components),
            ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(components),
            ApiKey.ELECT_LEADERS: ElectLeadersHandler(components),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsHandler(components),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsHandler(),
            ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(components),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(components),
            ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(components),
            ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesHandler(components),
            ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(components),
        },
        clock=clock,
        metrics=counted,
    )
