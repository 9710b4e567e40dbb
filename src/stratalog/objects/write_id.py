"""The mark by which a conditional put recognises its own object.

A put whose reply was lost is repeated, and then hears that the key exists already or has changed:
by its own hand, perhaps. The put therefore carries an id in its user metadata that stays the same
over all repetitions. The caller that repeats puts must choose the id, so a store takes the given
one and makes one only if none was given. The id is never shown to readers.
"""

from collections.abc import Mapping

from stratalog.ids import Entropy
from stratalog.objects.store import Overwrite, PutMode

WRITE_ID = "stratalog-write-id"


def with_write_id(metadata: Mapping[str, str], mode: PutMode, entropy: Entropy) -> dict[str, str]:
    """The metadata with a write id, unless the put is unconditional and cannot be in doubt."""
    if isinstance(mode, Overwrite) or WRITE_ID in metadata:
        return dict(metadata)
    return {**metadata, WRITE_ID: entropy(16).hex()}


def without_write_id(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in metadata.items() if name != WRITE_ID}
