"""The ledger of the pipeline."""

from stratalog.control.pipeline.aged import AgedOperations
from stratalog.control.pipeline.claims import ClaimOperations
from stratalog.control.pipeline.dead_objects import DeadObjectOperations
from stratalog.control.pipeline.held_back import HeldBackOperations
from stratalog.control.pipeline.runs import RunOperations
from stratalog.control.pipeline.splits import SplitOperations
from stratalog.control.pipeline.tier_status import TierStatusOperations
from stratalog.control.pipeline.topic_orders import TopicOrderOperations


class PipelineLedger(
    AgedOperations,
    ClaimOperations,
    SplitOperations,
    DeadObjectOperations,
    HeldBackOperations,
    RunOperations,
    TopicOrderOperations,
    TierStatusOperations,
):
    """Runs claim ranges of partitions, work on them without the control plane, and commit under
    the claim's token. All times are the database's."""
