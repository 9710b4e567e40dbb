"""The history of the pipeline's runs."""

import json
from collections.abc import Mapping
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.pipeline.errors import UnknownRunError
from stratalog.control.pipeline.model import Run, RunId
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.ids import Entropy, uuid7

KEPT_RUNS = 5000
"""A report is a kilobyte, some forty if much has failed; and a run a minute makes 1440 a day."""

_COLUMNS = "run_id, holder, started_ms, finished_ms, report"


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
        """The newest first."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {_COLUMNS} FROM runs ORDER BY started_ms DESC, run_id DESC LIMIT $1",
                limit,
            )
        )
        return [_run(row) for row in rows]


async def _begin(connection: Connection, holder: str, entropy: Entropy) -> Run:
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    rows = await connection.fetch(
        "INSERT INTO runs (run_id, holder, started_ms, report) VALUES ($1, $2, $3, '{}')"
        f" RETURNING {_COLUMNS}",
        uuid7(now_ms, entropy),
        holder,
        now_ms,
    )
    await connection.execute(
        "DELETE FROM runs WHERE started_ms <"
        " (SELECT started_ms FROM runs ORDER BY started_ms DESC LIMIT 1 OFFSET $1)",
        KEPT_RUNS - 1,
    )
    return _run(rows[0])


def _run(row: Row) -> Run:
    run_id, holder, started_ms, finished_ms, report = row
    return Run(
        run_id=RunId(as_uuid(run_id)),
        holder=holder,
        started_ms=started_ms,
        finished_ms=finished_ms,
        report=json.loads(report),
    )
