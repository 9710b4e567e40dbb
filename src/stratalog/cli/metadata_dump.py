"""Files with the records of `__remote_log_metadata`, in one of two forms:

- JSON lines, as `stratalog segments export` and `stratalog consume --json` write them.
- Values with their lengths (32-bit, big-endian) in front, as `kcat -f '%R%s'` writes them.

The first byte tells the forms apart. Records about one partition must come in their order, which
both tools keep.
"""

import json
import struct
from base64 import b64encode
from pathlib import Path

from stratalog.cli.errors import DumpError
from stratalog.cli.record_json import record_from_json
from stratalog.errors import CallError
from stratalog.segment.remote_log_metadata import METADATA_TOPIC

_LENGTH = struct.Struct(">i")


def read_dump(file: Path) -> list[bytes | None]:
    """Return the values of all records."""
    try:
        data = file.read_bytes()
        # A length whose first byte is a brace would be of gigabytes.
        return _json_values(data) if data.lstrip()[:1] == b"{" else _framed_values(data)
    except CallError as error:
        raise DumpError(f"{file}: {error}") from error


def dump_line(partition: int, value: bytes) -> str:
    """Write a record of the metadata topic as `stratalog produce --json` reads it."""
    return json.dumps(
        {
            "topic": METADATA_TOPIC,
            "partition": partition,
            "key": None,
            "value_base64": b64encode(value).decode(),
        }
    )


def _json_values(data: bytes) -> list[bytes | None]:
    return [
        record_from_json(line, number=number).value
        for number, line in enumerate(data.splitlines(), start=1)
        if line.strip()
    ]


def _framed_values(data: bytes) -> list[bytes | None]:
    values: list[bytes | None] = []
    position = 0
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise _cut_off(position)
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if size < 0:
            values.append(None)
            continue
        if len(data) - position < size:
            raise _cut_off(position)
        values.append(data[position : position + size])
        position += size
    return values


def _cut_off(position: int) -> DumpError:
    return DumpError(
        f"no complete record at byte {position}: write the file with"
        " `stratalog consume --json`, or with `kcat -f '%R%s'`"
    )
