"""The ledger of the log: partitions, the coordinates of their batches, their producers."""

from stratalog.control.log.commits import CommitOperations
from stratalog.control.log.deletes import DeleteOperations
from stratalog.control.log.dry_runs import DryRunOperations
from stratalog.control.log.epochs import EpochOperations
from stratalog.control.log.partitions import PartitionOperations
from stratalog.control.log.producers import ProducerOperations
from stratalog.control.log.reads import ReadOperations
from stratalog.control.log.retention import RetentionOperations


class LogLedger(
    PartitionOperations,
    CommitOperations,
    ProducerOperations,
    ReadOperations,
    EpochOperations,
    DeleteOperations,
    RetentionOperations,
    DryRunOperations,
):
    """Partitions, the coordinates of their batches, and their producers."""
