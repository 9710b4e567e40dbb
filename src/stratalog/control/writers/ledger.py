"""Writers: the processes that upload objects, from their announcement to their end.

A writer is announced before its first upload, and the ids of its objects carry its tag. So an
object without a row may be deleted as garbage only if its writer was announced here: all other
objects are foreign, or were written after the backup that this control plane was restored
from.
"""

from collections.abc import Iterable

from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.writers.counting import check_count
from stratalog.control.writers.model import WRITER, WRITERS, CommitCount, Writer, WriterKind
from stratalog.ids import BrokerId, WriterTag, new_writer_tag

_TAG = WRITERS.shape("tag")
_ANNOUNCE = """
    INSERT INTO writers (tag, kind, broker_id, announced_ms, commits)
    SELECT $1, $2, $3, {now_ms}, 0 FROM cluster WHERE TRUE
    ON CONFLICT (tag) DO NOTHING
"""
# The writers of brokers that were killed stay: one row for each kill. Of the others, none works for
# as long.
_FORGET = """
    DELETE FROM writers WHERE ended_ms < {now_ms} - $1
    OR (ended_ms IS NULL AND kind <> 'broker' AND announced_ms < {now_ms} - $1)
"""


class WritersLedger(Ledger):
    def new_tag(self) -> WriterTag:
        return new_writer_tag(self._entropy)

    async def announce(
        self, tag: WriterTag, kind: WriterKind, broker_id: BrokerId | None = None
    ) -> None:
        """Announce a writer. May be repeated."""
        await self._database.write(
            lambda connection: connection.execute(_ANNOUNCE, tag, kind.value, broker_id)
        )

    async def end(self, tag: WriterTag) -> None:
        """Note that the writer uploads and commits nothing any more. May be repeated."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE writers SET ended_ms = {now_ms} WHERE tag = $1 AND ended_ms IS NULL", tag
            )
        )

    async def check(self, count: CommitCount) -> None:
        """Raise unless the control plane knows of all commits of the writer, which may go on."""
        await self._database.read(lambda connection: check_count(connection, count))

    async def forget(self, *, older_than_ms: int) -> int:
        """Remove writers that ended this long ago. By then their garbage has been swept."""
        return await self._database.write(
            lambda connection: connection.execute(_FORGET, older_than_ms)
        )

    async def all(self) -> list[Writer]:
        """All writers, in the order of their announcement."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {WRITER.columns} FROM writers ORDER BY announced_ms, tag"
            )
        )
        return WRITER.read_all(rows)

    async def known(self, tags: Iterable[WriterTag]) -> dict[WriterTag, Writer]:
        """Return the writers of these tags that were announced."""
        source = Rows(_TAG, [(tag,) for tag in sorted(set(tags))])
        if not source.values:
            return {}

        async def work(connection: Connection) -> list[Writer]:
            rows = await connection.fetch(
                f"SELECT {WRITER.columns} FROM {{rows}} JOIN writers ON writers.tag = r.tag",
                rows=source,
            )
            return WRITER.read_all(rows)

        return {writer.tag: writer for writer in await self._database.read(work)}
