"""The count of a writer's commits, taken in each commit's own transaction.

A writer remembers how many of its commits succeeded. A control plane that was restored, or that
failed over to a replica which lagged behind, has a lower number, or does not know the writer. Then
offsets that were acknowledged would be given out again. So the commit raises instead, and its
transaction is rolled back. Each writer touches only its own row, so that writers do not wait for
each other.
"""

from stratalog.control.sql.database import Connection
from stratalog.control.writers.errors import (
    ControlPlaneHaltedError,
    ControlPlaneWentBackError,
    WriterEndedError,
    WriterRefusedError,
)
from stratalog.control.writers.model import CommitCount

_COUNT = """
    UPDATE writers SET commits = commits + 1
    WHERE tag = $1 AND commits BETWEEN $2 AND $3 AND ended_ms IS NULL
        AND NOT EXISTS (SELECT 1 FROM cluster WHERE halted_ms IS NOT NULL)
"""
_KNOWN = """
    SELECT 1 FROM writers WHERE tag = $1 AND commits >= $2
        AND NOT EXISTS (SELECT 1 FROM cluster WHERE halted_ms IS NOT NULL)
"""


async def count_commit(connection: Connection, count: CommitCount) -> None:
    """Count one more commit. Raises unless the control plane knows of all commits before it."""
    if not await connection.execute(_COUNT, count.tag, count.least, count.most):
        raise await _refusal(connection, count)


async def check_count(connection: Connection, count: CommitCount) -> None:
    """Raise unless the control plane knows of all commits of the writer. Counts nothing.

    A control plane that went back has no rows of objects that it has forgotten, and says of their
    commits that they never happened. They stand in the log again if the newest one comes back.
    """
    if not await connection.fetch(_KNOWN, count.tag, count.least):
        raise await _refusal(connection, count)


async def _refusal(connection: Connection, count: CommitCount) -> WriterRefusedError:
    halted = await connection.fetch("SELECT halted_reason, halted_ms FROM cluster")
    if halted and halted[0][1] is not None:
        return ControlPlaneHaltedError(halted_text(str(halted[0][0])))
    rows = await connection.fetch("SELECT commits, ended_ms FROM writers WHERE tag = $1", count.tag)
    if not rows:
        return ControlPlaneWentBackError(
            f"the control plane went back: it does not know writer {count.tag:010x}, which has"
            f" made {count.least} commits. Was it restored, or did it fail over to a replica that"
            " lagged behind?"
        )
    [(commits, ended_ms)] = rows
    if commits < count.least:
        return ControlPlaneWentBackError(
            f"the control plane went back: it knows {commits} commits of writer"
            f" {count.tag:010x}, which has made {count.least}. Was it restored, or did it fail"
            " over to a replica that lagged behind?"
        )
    why = f"it was ended at {ended_ms}" if ended_ms is not None else "another process uses its tag"
    return WriterEndedError(f"writer {count.tag:010x} may not commit any more: {why}")


def halted_text(reason: str) -> str:
    return (
        f"the cluster is halted: {reason} Restore a newer backup of the control plane; or, to go on"
        " with this one, stop all brokers and run `stratalog control accept`"
    )
