"""Decides which clients get a connection, by the number that are open.

A client beyond a limit is accepted and closed at once, which tells it to try another broker. If it
were left in the queue of the listening socket, it would wait for its own timeout.
"""

import logging
import socket
from collections import Counter

from stratalog.clock import Clock
from stratalog.metrics import CONNECTIONS_REFUSED, Metrics

log = logging.getLogger(__name__)

_LOG_PAUSE_S = 60.0
"""Between two lines about refused clients: a client in a loop would fill the disk with them."""
_V6_NETWORK_BYTES = 8
"""A host has all addresses of its IPv6 network, so that they count as one."""


class Admission:
    def __init__(
        self,
        *,
        most: int,
        most_per_address: int,
        reserve_keeps: int,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`reserve_keeps`: the most connections that leave descriptors for files and databases."""
        self._most = most
        self._most_per_address = most_per_address
        self._reserve_keeps = reserve_keeps
        self._clock = clock
        self._refused = metrics.counter(CONNECTIONS_REFUSED)
        self._by_address: Counter[bytes] = Counter()
        self._count = 0
        self._silent_until_s = clock.monotonic()

    def admit(self, host: str) -> bool:
        """Count a new connection, or refuse it. `left` gives an admitted one back."""
        address = _address_of(host)
        limit, reason = self._limit(address)
        if reason:
            self._refused.labels(limit).inc()
            self._log(host, reason)
            return False
        self._count += 1
        self._by_address[address] += 1
        return True

    def left(self, host: str) -> None:
        address = _address_of(host)
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _limit(self, address: bytes) -> tuple[str, str]:
        """The limit that is reached and the reason for people, or empty texts."""
        if self._count >= self._reserve_keeps:
            return "descriptors", (
                f"{self._count} connections leave too few descriptors for files and the database:"
                " raise the limit of open files (ulimit -n)"
            )
        if self._count >= self._most:
            return "total", f"{self._count} connections are open (broker.max_connections)"
        if self._by_address[address] >= self._most_per_address:
            return "address", (
                f"it has {self._by_address[address]} connections"
                " (broker.max_connections_per_address)"
            )
        return "", ""

    def _log(self, host: str, reason: str) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._silent_until_s:
            log.warning("Refusing a client at %s: %s", host, reason)
            self._silent_until_s = now_s + _LOG_PAUSE_S


def _address_of(host: str) -> bytes:
    if ":" not in host:
        return host.encode()
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:_V6_NETWORK_BYTES]
