"""Seals datagrams between the brokers of a cluster, so that only these brokers can send one.

The key is in the control plane, which only brokers and pipelines reach. A sealed datagram carries
its sender's incarnation and a count that only grows, so that it is accepted once: a recorded
datagram that is sent again, and one that another overtook, are dropped.
"""

import hmac
import struct
from collections import OrderedDict
from hashlib import blake2b
from itertools import count
from uuid import UUID

_HEAD = struct.Struct(">16sQ")
_MAC_BYTES = 16
_MOST_SENDERS = 1024


class HintSeal:
    def __init__(self, *, key: bytes, cluster_id: UUID, incarnation: UUID) -> None:
        self._key = key
        self._cluster = cluster_id.bytes
        self._sender = incarnation.bytes
        self._counts = count(1)
        self._newest: OrderedDict[bytes, int] = OrderedDict()

    def seal(self, body: bytes) -> bytes:
        sealed = _HEAD.pack(self._sender, next(self._counts)) + body
        return sealed + self._mac(sealed)

    def open(self, datagram: bytes) -> bytes | None:
        """Return the body. None if it is not of this cluster, or was accepted before."""
        sealed, mac = datagram[:-_MAC_BYTES], datagram[-_MAC_BYTES:]
        if len(sealed) < _HEAD.size or not hmac.compare_digest(mac, self._mac(sealed)):
            return None
        sender, number = _HEAD.unpack_from(sealed)
        if number <= self._newest.get(sender, 0):
            return None
        self._newest[sender] = number
        self._newest.move_to_end(sender)
        if len(self._newest) > _MOST_SENDERS:
            self._newest.popitem(last=False)
        return sealed[_HEAD.size :]

    def _mac(self, sealed: bytes) -> bytes:
        return blake2b(self._cluster + sealed, key=self._key, digest_size=_MAC_BYTES).digest()
