"""Opens a control plane by its address."""

from pathlib import Path

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.errors import ControlAccessError, NoControlPlaneError
from stratalog.control.identity.ledger import is_founded
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.sql.migrate import is_current, migrate
from stratalog.control.sql.postgres import MAX_CONNECTIONS, PostgresDatabase
from stratalog.control.sql.sqlite import SqliteDatabase
from stratalog.ids import Entropy, system_entropy


async def open_control_plane(
    url: str,
    *,
    entropy: Entropy = system_entropy,
    clock: Clock = SYSTEM_CLOCK,
    connections: int = MAX_CONNECTIONS,
) -> ControlPlane:
    """Open `sqlite:<path>` or `postgresql://...`, with its schema brought up to date.

    `connections`: the most that are opened to PostgreSQL at once.
    """
    database = await open_database(url, clock, connections=connections)
    try:
        await migrate(database)
        plane = ControlPlane(database, entropy, clock)
        await plane.identity.found()
    except BaseException:
        await database.close()
        raise
    return plane


async def open_existing(url: str, *, connections: int = MAX_CONNECTIONS) -> ControlPlane:
    """Open a control plane that a broker has made, for programs other than brokers.

    A missing one is not created: a mistyped address would lead to a new, empty cluster. An older
    schema is brought up to date, because that only adds and a job may be newer than all brokers;
    otherwise nothing is changed, and no right to change a schema is needed.
    """
    if _is_missing_file(url):
        raise _no_control_plane(url.removeprefix("sqlite:"))
    database = await open_database(url, connections=connections)
    try:
        if not await is_founded(database):
            raise _no_control_plane(database.url)
        if not await is_current(database):
            await _update(database)
    except BaseException:
        await database.close()
        raise
    return ControlPlane(database, system_entropy)


def _is_missing_file(url: str) -> bool:
    """Return True if opening would make a file, or turn an empty file into a database."""
    scheme, _, path = url.partition(":")
    return scheme == "sqlite" and (not Path(path).exists() or Path(path).stat().st_size == 0)


def _no_control_plane(place: str) -> NoControlPlaneError:
    return NoControlPlaneError(
        f"there is no control plane at {place}: name another by storage.control in the settings"
        " (commands also take --data or --control), or start a broker first with `stratalog up`"
    )


async def _update(database: Database) -> None:
    try:
        await migrate(database)
    except ControlAccessError as error:
        raise ControlAccessError(
            f"{error}; the schema is older than this version, and this user may not change it:"
            " start a broker of this version first"
        ) from error


async def open_database(
    url: str, clock: Clock = SYSTEM_CLOCK, *, connections: int = MAX_CONNECTIONS
) -> Database:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return await SqliteDatabase.open(url, clock)
    if scheme in ("postgresql", "postgres"):
        return await PostgresDatabase.open(url, clock, connections=connections)
    raise ControlAccessError(f"control plane {scheme!r}: use sqlite:<path> or postgresql://...")
