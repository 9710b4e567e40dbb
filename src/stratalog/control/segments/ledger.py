"""The ledger of segments."""

from stratalog.control.segments.chain import ChainOperations
from stratalog.control.segments.exports import ExportOperations
from stratalog.control.segments.lifecycle import SegmentOperations


class SegmentsLedger(SegmentOperations, ChainOperations, ExportOperations):
    """Segments, from the note of an upload to the end of their deletion."""
