"""The subscription in the metadata of a classic member: the topics that it reads.

This is the only part of the consumers' own protocol that a broker understands. The protocol is a
matter of the clients, and members may use another one. So metadata that cannot be read is no error:
it means that the topics are not known.
"""

import struct

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics that the metadata names, or None if it is not the metadata of a
    consumer."""
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
