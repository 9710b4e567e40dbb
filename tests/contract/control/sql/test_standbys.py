"""PostgreSQL with a synchronous standby that does not answer."""

from collections.abc import Iterator

import asyncpg
import pytest
from tests.contract.control.building import batch, block, part
from tests.support.servers import PostgresServer, run_postgres

from stratalog.control.errors import CommitInDoubtError
from stratalog.control.open import open_control_plane
from stratalog.control.sql import postgres


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, because the setting concerns all databases of a server."""
    with run_postgres() as own:
        yield own


async def wait_for_standby(server: PostgresServer, name: str) -> None:
    admin = await asyncpg.connect(server.dsn("postgres"))
    # Its own changes do not wait.
    await admin.execute("SET synchronous_commit = local")
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await admin.execute("SELECT pg_reload_conf()")
    while await admin.fetchval("SHOW synchronous_standby_names") != name:
        pass
    await admin.close()


async def test_a_commit_that_its_standby_has_not_is_not_acknowledged(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "COMMAND_TIMEOUT_S", 1)
    plane = await open_control_plane(server.create_database())
    topic = await plane.topics.create("events", partition_count=1, configs={})
    blocks = [block(batch(part(topic), 3))]
    await wait_for_standby(server, "absent")
    with pytest.raises(CommitInDoubtError):
        await plane.log.commit_blocks(blocks)
    for settle in (plane.log.resolve_commit, plane.log.commit_blocks):
        with pytest.raises(CommitInDoubtError):
            await settle(blocks)
    await wait_for_standby(server, "")
    answers = await plane.log.resolve_commit(blocks)
    assert answers is not None
    assert answers[0][0].base_offset == 0
    await plane.close()
