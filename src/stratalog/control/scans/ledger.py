"""The ledger of scans, which read topics whole, and of sinks, which write once."""

from stratalog.control.scans.sinks import SinkOperations
from stratalog.control.scans.snapshots import ScanOperations


class ScansLedger(ScanOperations, SinkOperations):
    """Leases, snapshots under a lease, and the batches that sinks have taken."""
