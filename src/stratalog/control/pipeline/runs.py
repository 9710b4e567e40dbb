"""The history of the pipeline's runs."""

import json
from collections.abc import Mapping
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.pipeline.errors import UnknownRunError
from stratalog.control.pipeline.model import RUN, Run, RunId
from stratalog.control.sql.database import Connection
from stratalog.ids import Entropy, uuid7

KEPT_RUNS = 5000
"""A report is a kilobyte, some forty if much has failed; and a run a minute makes 1440 a day."""

_NEWEST = f"""
    SELECT {RUN.columns} FROM runs ORDER BY started_ms DESC, run_id DESC LIMIT $1
"""
_BEGIN = f"""
    INSERT INTO runs (run_id, holder, started_ms, report) VALUES ($1, $2, $3, '{{}}')
    RETURNING {RUN.columns}
"""
_FORGET_OLD = """
    DELETE FROM runs WHERE started_ms < (
        SELECT started_ms FROM runs ORDER BY started_ms DESC LIMIT 1 OFFSET $1
    )
"""


class RunOperations(Ledger):
    async def begin_run(self, holder: str) -> Run:
        """Open an entry in the history of runs, which keeps the newest few thousand."""
        return await self._database.write(partial(_begin, holder=holder, entropy=self._entropy))

    async def save_run(
        self, run_id: RunId, report: Mapping[str, object], *, finished: bool
    ) -> None:
        finished_ms = "COALESCE(finished_ms, {now_ms})" if finished else "finished_ms"
        saved = await self._database.write(
            lambda connection: connection.execute(
                f"UPDATE runs SET report = $1, finished_ms = {finished_ms} WHERE run_id = $2",
                json.dumps(dict(report)),
                run_id,
            )
        )
        if not saved:
            raise UnknownRunError(f"run {run_id} is not in the history: begin another")

    async def runs(self, *, limit: int) -> list[Run]:
        """Return the newest runs, the newest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_NEWEST, limit))
        return RUN.read_all(rows)


async def _begin(connection: Connection, holder: str, entropy: Entropy) -> Run:
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    rows = await connection.fetch(_BEGIN, uuid7(now_ms, entropy), holder, now_ms)
    await connection.execute(_FORGET_OLD, KEPT_RUNS - 1)
    return RUN.read(rows[0])
