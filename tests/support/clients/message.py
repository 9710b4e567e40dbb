"""A message as the tests write it, and as any client reads it back."""

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None leaves it to the client, which takes the time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: str


def numbered(count: int, prefix: str = "message") -> list[Message]:
    return [Message(f"{prefix}-{number}".encode()) for number in range(count)]


def values(messages: "list[Message] | list[Received]") -> list[bytes | None]:
    return [message.value for message in messages]
