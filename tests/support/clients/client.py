"""The four Kafka clients behind one face, so that a test can be written once for all of them.

The interface hides names, never behaviour: each call is the one that a user of that client would
write, with
its defaults where the test says nothing else, and the client's own exceptions come through.
"""

from collections.abc import Sequence
from typing import Protocol

from tests.support.clients.message import Message, Received

ANSWER_SECONDS = 30.0
"""How long any client waits before a test fails: long enough for a busy machine."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Client(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def tells_offsets(self) -> bool:
        """Set if `write` returns the offsets that the broker answered with."""

    @property
    def sets_timestamps(self) -> bool:
        """Set if a message's own timestamp is sent."""

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """Send in order and wait until all are acknowledged; with acks=0, until they are sent."""

    def read(
        self, bootstrap: str, topic: str, *, count: int, partition: int = 0, start: int = 0
    ) -> list[Received]:
        """The next `count` messages from the offset `start` on; fewer if they do not come."""
