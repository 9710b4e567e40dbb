"""Opening a control plane: addresses, migrations, failures."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.contract.control.building import batch, change, commit, held_up, part

from stratalog.control.errors import (
    ControlAccessError,
    ControlDamagedError,
    ControlUnavailableError,
    NoControlPlaneError,
)
from stratalog.control.open import open_control_plane, open_database, open_existing
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Connection, Database
from stratalog.control.sql.migrate import Migration, known_migrations, migrate
from stratalog.control.topics.model import Topic


@pytest.fixture(params=["sqlite", "postgresql"])
def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that was never opened before."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'below' / 'control.db'}"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


async def applied(database: Database) -> list[int]:
    rows = await database.read(
        lambda connection: connection.fetch("SELECT number FROM schema_migrations ORDER BY number")
    )
    return [row[0] for row in rows]


async def test_concurrent_starters_migrate_once_and_agree(control_url: str) -> None:
    planes = await asyncio.gather(*(open_control_plane(control_url) for _ in range(5)))
    clusters = [await plane.identity.cluster() for plane in planes]
    assert len({cluster.cluster_id for cluster in clusters}) == 1
    database = await open_database(control_url)
    assert await applied(database) == [m.number for m in known_migrations("sqlite")]
    await database.close()
    for plane in planes:
        await plane.close()


async def test_a_newer_schema_is_accepted(
    control_url: str, plane: ControlPlane, database: Database
) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("ALTER TABLE topics ADD COLUMN mood text DEFAULT 'good'")
        await connection.execute(
            "INSERT INTO schema_migrations (number, name, applied_ms) VALUES (9999, 'mood', 0)"
        )

    await database.write(work)
    await migrate(database)
    later = await open_control_plane(control_url)
    topic = await later.topics.create("events", partition_count=1, configs={})
    assert len(await commit(later, batch(part(topic)))) == 1
    await later.close()


async def schema_of(database: Database) -> set[str]:
    rows = await database.read(lambda connection: connection.fetch("SELECT t.name FROM {tables}"))
    return {name for (name,) in rows}


async def test_nothing_is_made_where_no_broker_has_made_a_control_plane(control_url: str) -> None:
    told = r"there is no control plane at .*control\.db: name another by storage\.control"
    if control_url.startswith("postgres"):
        told = "there is no control plane at postgresql://"
    with pytest.raises(NoControlPlaneError, match=told) as caught:
        await open_existing(control_url)
    assert "password" not in str(caught.value)
    database = await open_database(control_url)
    assert await schema_of(database) == set()
    await database.close()


async def test_an_empty_file_is_no_control_plane_and_stays_empty(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    path.touch()
    with pytest.raises(NoControlPlaneError, match=r"control\.db"):
        await open_existing(f"sqlite:{path}")
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


async def test_migrations_of_a_database_in_use_hold_no_locks_of_each_other(
    control_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is committed before the next begins, so that the first stays if that fails."""
    database = await open_database(control_url)
    await migrate(database)
    known = known_migrations("sqlite")
    bad = [
        Migration(9000, "mood", ("CREATE TABLE IF NOT EXISTS moods (x text)",)),
        Migration(9001, "bad", ("CREATE TABLE",)),
    ]
    monkeypatch.setattr("stratalog.control.sql.migrate.known_migrations", lambda _: [*known, *bad])
    with pytest.raises(Exception, match=r"syntax|incomplete"):
        await migrate(database)
    assert await applied(database) == [*(one.number for one in known), 9000]
    await change(database, "DELETE FROM schema_migrations WHERE number = 9000")
    await change(database, "DROP TABLE moods")
    await database.close()


async def test_tables_without_a_cluster_are_no_control_plane(control_url: str) -> None:
    """As a broker leaves them that ended between the two."""
    database = await open_database(control_url)
    await migrate(database)
    with pytest.raises(NoControlPlaneError):
        await open_existing(control_url)
    await database.close()


async def test_what_a_broker_has_made_is_opened_and_its_schema_is_left_alone(
    control_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await open_control_plane(control_url)
    database = await open_database(control_url)
    newer = "INSERT INTO schema_migrations (number, name, applied_ms) VALUES (9999, 'mood', 0)"
    await change(database, newer)

    async def refuse(_: Database) -> None:
        raise AssertionError("nobody asked for this")

    monkeypatch.setattr("stratalog.control.open.migrate", refuse)
    opened = await open_existing(control_url)
    assert await opened.identity.cluster() == await made.identity.cluster()
    await opened.close()
    await database.close()
    await made.close()


@pytest.fixture
async def outdated(control_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A control plane of the version before one that knows a migration more."""
    await (await open_control_plane(control_url)).close()
    known = [
        *known_migrations("sqlite"),
        Migration(9000, "moods", ("CREATE TABLE moods (x text)",)),
    ]
    monkeypatch.setattr("stratalog.control.sql.migrate.known_migrations", lambda _: known)
    return control_url


async def test_an_older_schema_is_brought_up_to_date_by_whoever_opens_it(outdated: str) -> None:
    await (await open_existing(outdated)).close()
    database = await open_database(outdated)
    assert "moods" in await schema_of(database)
    assert (await applied(database))[-1] == 9000
    await database.close()


async def test_a_user_who_may_not_change_an_older_schema_is_told_who_may(
    outdated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Database) -> None:
        raise ControlAccessError("permission denied for schema public")

    monkeypatch.setattr("stratalog.control.open.migrate", refuse)
    with pytest.raises(ControlAccessError, match=r"denied .*start a broker of this version first"):
        await open_existing(outdated)


async def test_what_was_written_is_there_after_reopening(control_url: str) -> None:
    first = await open_control_plane(control_url)
    topic = await first.topics.create("events", partition_count=1, configs={"a": "ö"})
    await commit(first, batch(part(topic), 3))
    await first.close()
    second = await open_control_plane(control_url)
    assert await second.topics.all() == [topic]
    assert (await second.log.high_watermarks([part(topic)]))[part(topic)] == 3
    await second.close()


async def test_failed_work_leaves_no_trace(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("DELETE FROM topics")
        raise RuntimeError("changed its mind")

    with pytest.raises(RuntimeError):
        await database.write(work)
    assert await plane.topics.all() == [topic]


async def test_cancelled_work_leaves_no_trace_and_no_lock(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    inside, cancelled = threading.Event(), threading.Event()

    async def work(connection: Connection) -> None:
        await connection.execute("DELETE FROM topics")
        inside.set()
        await held_up(cancelled)

    task = asyncio.create_task(database.write(work))
    await held_up(inside)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled.set()
    assert await plane.topics.all() == [topic]
    await plane.topics.delete(topic.id)
    assert (
        await database.read(lambda c: c.fetch("SELECT 1 FROM topics WHERE deleted_ms IS NULL"))
        == []
    )


async def test_work_that_waits_for_something_else_is_refused_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    database = await open_database(f"sqlite:{tmp_path / 'control.db'}")

    async def work(connection: Connection) -> None:
        await connection.execute("CREATE TABLE t (x integer)")
        await asyncio.sleep(0)

    with pytest.raises(TypeError, match="something else than its statements"):
        await database.write(work)
    assert await database.read(lambda c: c.fetch("SELECT name FROM sqlite_master")) == []
    await database.close()


async def test_a_reader_keeps_its_snapshot(plane: ControlPlane, database: Database) -> None:
    looked, changed = threading.Event(), threading.Event()

    async def work(connection: Connection) -> tuple[int, int]:
        before = len(await connection.fetch("SELECT 1 FROM topics"))
        looked.set()
        await held_up(changed)
        return before, len(await connection.fetch("SELECT 1 FROM topics"))

    reading = asyncio.create_task(database.read(work))
    await held_up(looked)
    await plane.topics.create("late", partition_count=1, configs={})
    changed.set()
    assert await reading == (0, 0)


async def test_other_addresses_are_refused() -> None:
    with pytest.raises(ControlAccessError, match="mysql"):
        await open_control_plane("mysql://localhost/x")


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are not the rows you are looking for, " * 50)
    with pytest.raises(ControlDamagedError, match=r"notes\.txt"):
        await open_control_plane(f"sqlite:{path}")


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlAccessError, match="file"):
        await open_control_plane(f"sqlite:{tmp_path}/file/control.db")


async def test_a_server_that_is_not_there_is_unavailable_and_its_password_stays_secret() -> None:
    with pytest.raises(ControlUnavailableError) as caught:
        await open_control_plane("postgresql://me:hunter2@127.0.0.1:1/db?password=hunter3")
    assert "127.0.0.1:1" in str(caught.value)
    assert "hunter" not in str(caught.value)
