"""The manifest of a backup: written last, so that a backup without it is none.

    backups/<time>-<eight characters>/<table>.jsonl.zst     a member: the rows of a table
    backups/<time>-<eight characters>/manifest.json         this

`docs/formats.md` has the fields.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stratalog.backup.errors import BackupDamagedError, BackupNewerError
from stratalog.control.sql.dump import Column
from stratalog.errors import MALFORMED_JSON

PREFIX = "backups/"
MANIFEST_NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The rows of one table, as one compressed object."""

    table: str
    columns: Sequence[Column]
    rows: int
    size_bytes: int
    crc32c: int
    """Of the compressed bytes."""

    @property
    def file_name(self) -> str:
        return f"{self.table}.jsonl.zst"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    name: str
    created_ms: int
    """By the clock of the program that made it, before the snapshot."""
    window_ms: int
    """How long the store kept replaced objects when the backup was made, grace included."""
    cluster_id: UUID
    generation: int
    cluster: Mapping[str, Any]
    """The row of the table `cluster`, for people and for checks without the members."""
    writers: Sequence[Mapping[str, Any]]
    """The rows of the table `writers`: the programs that upload objects, and their commits."""
    newest_object: UUID | None
    """The highest id of an object that the control plane knew."""
    migrations: Sequence[int]
    control_url: str
    objects_url: str
    members: Sequence[Member]

    @property
    def prefix(self) -> str:
        return f"{PREFIX}{self.name}/"

    @property
    def size_bytes(self) -> int:
        return sum(member.size_bytes for member in self.members)

    @property
    def rows(self) -> int:
        return sum(member.rows for member in self.members)

    def restorable_until_ms(self, window_ms: int) -> int:
        """The time until which the store has all that the backup names, with today's window."""
        return self.created_ms + min(self.window_ms, window_ms)

    def key_of(self, member: Member) -> str:
        return self.prefix + member.file_name

    @property
    def keys(self) -> list[str]:
        """The manifest first: without it the rest is no backup any more."""
        return [self.prefix + MANIFEST_NAME, *map(self.key_of, self.members)]


def encode_manifest(manifest: BackupManifest) -> bytes:
    fields = {
        "format": FORMAT,
        "name": manifest.name,
        "created_ms": manifest.created_ms,
        "window_ms": manifest.window_ms,
        "cluster_id": str(manifest.cluster_id),
        "generation": manifest.generation,
        "cluster": manifest.cluster,
        "writers": manifest.writers,
        "newest_object": None if manifest.newest_object is None else str(manifest.newest_object),
        "migrations": list(manifest.migrations),
        "control_url": manifest.control_url,
        "objects_url": manifest.objects_url,
        "tables": [
            {
                "name": member.table,
                "columns": [[column.name, column.type] for column in member.columns],
                "rows": member.rows,
                "bytes": member.size_bytes,
                "crc32c": member.crc32c,
            }
            for member in manifest.members
        ],
    }
    return json.dumps(fields, indent=1, default=_as_text).encode() + b"\n"


def parse_manifest(data: bytes | bytearray | memoryview, key: str) -> BackupManifest:
    try:
        fields = json.loads(bytes(data))
        if fields["format"] > FORMAT:
            raise BackupNewerError(
                f"{key} has format {fields['format']}, this version knows {FORMAT}: upgrade"
            )
        newest = fields["newest_object"]
        return BackupManifest(
            name=str(fields["name"]),
            created_ms=int(fields["created_ms"]),
            window_ms=int(fields["window_ms"]),
            cluster_id=UUID(fields["cluster_id"]),
            generation=int(fields["generation"]),
            cluster=dict(fields["cluster"]),
            writers=[dict(each) for each in fields["writers"]],
            newest_object=None if newest is None else UUID(newest),
            migrations=[int(number) for number in fields["migrations"]],
            control_url=str(fields["control_url"]),
            objects_url=str(fields["objects_url"]),
            members=[_parse_member(each) for each in fields["tables"]],
        )
    except MALFORMED_JSON as error:
        raise BackupDamagedError(f"{key} is no manifest of a backup: {error!r}") from error


def _parse_member(fields: Mapping[str, Any]) -> Member:
    return Member(
        table=str(fields["name"]),
        columns=[Column(name=str(name), type=str(kind)) for name, kind in fields["columns"]],
        rows=int(fields["rows"]),
        size_bytes=int(fields["bytes"]),
        crc32c=int(fields["crc32c"]),
    )


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
