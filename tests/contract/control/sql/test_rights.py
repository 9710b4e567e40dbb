"""A control plane whose schema is current needs the right to change rows, and no other."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.contract.control.building import batch, commit, part
from tests.support.servers import PostgresServer

from stratalog.control.errors import ControlAccessError
from stratalog.control.identity.model import StoreRole
from stratalog.control.open import open_control_plane, open_database, open_existing
from stratalog.control.sql.database import Connection
from stratalog.control.sql.migrate import known_migrations

ROLE = "stratalog_rows_only"
GRANTS = f"""
    GRANT USAGE ON SCHEMA public TO {ROLE};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE};
"""


@pytest.fixture
async def limited_url(postgres_dsn: str) -> AsyncIterator[str]:
    """The address of a current control plane for a role that may only change rows."""
    await (await open_control_plane(postgres_dsn)).close()
    owner = await asyncpg.connect(postgres_dsn)
    await owner.execute(f"CREATE ROLE {ROLE} LOGIN")
    await owner.execute(GRANTS)
    try:
        yield _as_role(postgres_dsn)
    finally:
        await owner.execute(f"DROP OWNED BY {ROLE}")
        await owner.execute(f"DROP ROLE {ROLE}")
        await owner.close()


def _as_role(dsn: str) -> str:
    return f"postgresql://{ROLE}@{dsn.rpartition('@')[2]}"


async def test_a_broker_and_a_job_need_no_right_to_change_the_schema(limited_url: str) -> None:
    plane = await open_control_plane(limited_url)
    try:
        topic = await plane.topics.create("t", partition_count=1, configs={})
        await commit(plane, batch(part(topic), 5))
        await plane.identity.hint_key()
        await plane.identity.first_claim(StoreRole.BLOCKS)
    finally:
        await plane.close()
    job = await open_existing(limited_url)
    try:
        assert [each.name for each in await job.topics.all()] == ["t"]
    finally:
        await job.close()


async def test_an_older_schema_is_refused_with_the_reason(
    limited_url: str, postgres_dsn: str
) -> None:
    newest = known_migrations("postgresql")[-1].number
    owner = await asyncpg.connect(postgres_dsn)
    await owner.execute("DELETE FROM schema_migrations WHERE number = $1", newest)
    await owner.close()
    with pytest.raises(ControlAccessError, match="permission denied"):
        await open_control_plane(limited_url)


async def test_the_role_of_this_test_may_not_change_the_schema(limited_url: str) -> None:
    async def work(connection: Connection) -> int:
        return await connection.execute("CREATE TABLE more (number integer)")

    database = await open_database(limited_url)
    try:
        with pytest.raises(ControlAccessError, match="permission denied"):
            await database.write(work)
    finally:
        await database.close()


async def test_the_statements_of_the_page_work(postgres_server: PostgresServer) -> None:
    page = (Path(__file__).parents[4] / "docs" / "postgresql.md").read_text("utf-8")
    blocks = re.findall(r"```sql shown\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 7
    roles, grants, *others = blocks
    superuser = await asyncpg.connect(postgres_server.dsn("postgres"))
    await superuser.execute("SET synchronous_commit = local")
    await _execute(superuser, roles)
    owner_url = postgres_server.dsn("stratalog").replace(
        f"//{postgres_server.user}@", "//stratalog_owner@"
    )
    try:
        await (await open_control_plane(owner_url)).close()
        owner = await asyncpg.connect(owner_url)
        await _execute(owner, grants)
        await owner.close()
        for block in others:
            await _execute(superuser, block)
            # No standby answers in this test: every later commit would wait.
            await superuser.execute("ALTER SYSTEM RESET synchronous_standby_names")
            await superuser.execute("SELECT pg_reload_conf()")
        for role in ("stratalog_broker", "stratalog_pipeline"):
            plane = await open_control_plane(owner_url.replace("stratalog_owner", role))
            await plane.topics.create(role, partition_count=1, configs={})
            await plane.close()
    finally:
        await superuser.execute("DROP DATABASE stratalog WITH (FORCE)")
        for role in ("broker", "pipeline", "owner"):
            await superuser.execute(f"DROP ROLE stratalog_{role}")
        await superuser.close()


async def _execute(connection: "asyncpg.Connection[asyncpg.Record]", block: str) -> None:
    for statement in filter(None, map(str.strip, block.split(";"))):
        await connection.execute(statement)
