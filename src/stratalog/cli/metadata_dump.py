"""Files with the records of `__remote_log_metadata`, in two forms that are told apart by sight.

- JSON lines, as `stratalog segments export` and `stratalog consume --json` write them.
- Values with their lengths (32-bit, big-endian) in front, as `kcat -f '%R%s'` writes them.

Records about one partition must come in their order. Both tools see to that.
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
    """The values of all records."""
    try:
        data = file.read_bytes()
        # Lengths that begin with the byte of a brace would be of gigabytes.
        return _json_values(data) if data.lstrip()[:1] == b"{" else _framed_values(data)
    except CallError as error:
        raise DumpError(f"{file}: {error}") from error


def dump_line(partition: int, value: bytes) -> str:
    """One record for the partition of the metadata topic. `stratalog produce --json` takes it."""
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
        f"at byte {position} no whole record follows: write the file with"
        " `stratalog consume --json`, or with `kcat -f '%R%s'`"
    )
