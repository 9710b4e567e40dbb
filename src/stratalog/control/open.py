"""Opens a control plane by its address."""

import os
from pathlib import Path

from stratalog.control.database import Database
from stratalog.control.migrate import migrate
from stratalog.control.plane import ControlAccessError, ControlPlane, NoControlPlaneError
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


async def open_existing(url: str) -> ControlPlane:
    """Open one that a broker has made. Opening a SQLite file would make one, and nobody would look
    for it where a mistyped path leads."""
    scheme, _, path = url.partition(":")
    if scheme == "sqlite" and not Path(path).exists():
        raise NoControlPlaneError(
            f"there is no control plane at {path}: name it with --data, --control or --config, or"
            " by storage.control in the settings, or start a broker first with `stratalog up`"
        )
    return await open_control_plane(url)


async def open_database(url: str) -> Database:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return await SqliteDatabase.open(url)
    if scheme in ("postgresql", "postgres"):
        return await PostgresDatabase.open(url)
    raise ControlAccessError(f"control plane {scheme!r}: use sqlite:<path> or postgresql://...")
