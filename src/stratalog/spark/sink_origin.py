"""The origin of a stream's batches: the identity of its checkpoint.

Spark gives every checkpoint an id, in its file `metadata`, and writes it before the first batch.
Runs from the same checkpoint repeat batches, and a run from another one has other rows under the
same numbers. Spark does not tell a sink the id, only the checkpoint's location.
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stratalog.control.scans.model import SinkOrigin
from stratalog.spark.sink_options import SinkOptions

_BY_ID = "checkpoint"
_BY_LOCATION = "location"


def sink_origin(options: SinkOptions) -> SinkOrigin | None:
    """Return the checkpoint's id, or its location if the id cannot be read from this machine."""
    if options.checkpoint_id is not None:
        return SinkOrigin(_BY_ID, options.checkpoint_id)
    if not options.checkpoint:
        return None
    found = _read_id(options.checkpoint)
    if found is not None:
        return SinkOrigin(_BY_ID, found)
    return SinkOrigin(_BY_LOCATION, options.checkpoint.rstrip("/"))


def _read_id(location: str) -> str | None:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(location if not parts.scheme else unquote(parts.path))
    try:
        document = json.loads((folder / "metadata").read_text(encoding="utf-8"))
        return str(document["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
