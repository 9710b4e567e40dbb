"""Opens a control plane by its address."""

import os

from stratalog.control.database import Database
from stratalog.control.migrate import migrate
from stratalog.control.plane import ControlAccessError, ControlPlane
from stratalog.control.postgres import PostgresDatabase
from stratalog.control.sql import SqlControlPlane
from stratalog.control.sqlite import SqliteDatabase
from stratalog.ids import Entropy


async def open_control_plane(url: str, *, entropy: Entropy = os.urandom) -> ControlPlane:
    """Open `sqlite:<path>` or `postgresql://...`, with its schema brought up to date."""
    database = await open_database(url)
    try:
        await migrate(database)
        plane = SqlControlPlane(database, entropy)
        await plane.found_cluster()
    except BaseException:
        await database.close()
        raise
    return plane


async def open_database(url: str) -> Database:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return await SqliteDatabase.open(url)
    if scheme in ("postgresql", "postgres"):
        return await PostgresDatabase.open(url)
    raise ControlAccessError(f"control plane {scheme!r}: use sqlite:<path> or postgresql://...")
