"""What of the consumer's own protocol the broker understands: which topics a member reads.

The protocol is the clients' business, and members may speak another one. So whatever is not
understood is no error: it says that nothing is known.
"""

import struct

CONSUMER = "consumer"
"""The protocol type of groups whose members consume topics."""

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a member's metadata, or None if it is not what consumers send."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        topics = []
        position = _HEAD.size
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + size]
            if size < 0 or len(name) < size:
                return None
            topics.append(name.decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
