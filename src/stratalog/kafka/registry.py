"""Which handler serves which API."""

from stratalog.clock import Clock
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.dispatch import Dispatcher
from stratalog.kafka.handlers.api_versions import ApiVersionsHandler
from stratalog.kafka.handlers.create_partitions import CreatePartitionsHandler
from stratalog.kafka.handlers.create_topics import CreateTopicsHandler
from stratalog.kafka.handlers.delete_topics import DeleteTopicsHandler
from stratalog.kafka.handlers.describe_cluster import DescribeClusterHandler
from stratalog.kafka.handlers.describe_configs import DescribeConfigsHandler
from stratalog.kafka.handlers.fetch import FetchHandler
from stratalog.kafka.handlers.find_coordinator import FindCoordinatorHandler
from stratalog.kafka.handlers.init_producer_id import InitProducerIdHandler
from stratalog.kafka.handlers.list_offsets import ListOffsetsHandler
from stratalog.kafka.handlers.metadata import MetadataHandler
from stratalog.kafka.handlers.produce import ProduceHandler
from stratalog.kafka.metrics import RequestMetrics
from stratalog.kafka.topic_creation import TopicCreation
from stratalog.metrics import Metrics


def dispatcher(components: Components, *, clock: Clock, metrics: Metrics) -> Dispatcher:
    """What a broker gives to `Server.start`."""
    counted = RequestMetrics(metrics)
    creation = TopicCreation(components)
    return Dispatcher(
        produce=ProduceHandler(components, counted),
        handlers={
            ApiKey.FETCH: FetchHandler(components, counted),
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(components),
            ApiKey.METADATA: MetadataHandler(components, creation),
            ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(),
            ApiKey.API_VERSIONS: ApiVersionsHandler(),
            ApiKey.CREATE_TOPICS: CreateTopicsHandler(components, creation),
            ApiKey.DELETE_TOPICS: DeleteTopicsHandler(components),
            ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(components),
            ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(components),
            ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(components),
            ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(components),
        },
        clock=clock,
        metrics=counted,
    )
