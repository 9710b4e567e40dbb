"""The check that no run of the pipeline works on a partition whose offsets are to be filled."""

from stratalog.control.lost.errors import LostRangeBusyError
from stratalog.control.lost.model import RangeToNote
from stratalog.control.sql.database import Connection

_CLAIMED = """
    SELECT 1 FROM claims
    WHERE topic_id = $1 AND partition = $2 AND token IS NOT NULL AND expires_ms > {now_ms}
"""


async def check_unclaimed(connection: Connection, note: RangeToNote) -> None:
    """Raise `LostRangeBusyError` while there is a claim. The caller has locked the head."""
    if await connection.fetch(_CLAIMED, *note.topic_partition):
        raise LostRangeBusyError(
            f"{note.name}: a run of the pipeline works on the partition: pause the topic, or"
            " wait for the run to end"
        )
