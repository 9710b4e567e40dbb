"""kcat: the command line tool, with the librdkafka of its distribution, which is an older one.

It takes keys and values on its standard input, with separators between them, and the headers and
the handling of nulls for a whole run. So messages are sent in runs of like ones.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from itertools import groupby

from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.message import CREATE_TIME, LOG_APPEND_TIME, Headers, Message, Received

_MESSAGE_END = "\x1e"
_KEY_END = "\x1f"


class KcatError(Exception):
    """kcat is missing, or ended with an error."""


class KcatClient:
    name = "kcat"
    tells_offsets = False
    sets_timestamps = False

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
        arguments = [
            *("-P", "-b", bootstrap, "-t", topic, "-p", f"{partition}", "-z", codec),
            *("-D", _MESSAGE_END, "-K", _KEY_END, "-X", f"acks={acks}"),
            *("-X", "message.max.bytes=50000000", "-X", "batch.num.messages=50"),
            # By itself it gives up as soon as it has lost all its connections.
            *("-E", "-X", "reconnect.backoff.max.ms=500"),
            *("-X", f"enable.idempotence={str(idempotent).lower()}"),
        ]
        for (headers, has_null), run in groupby(messages, key=_kind):
            more = [*_header_arguments(headers), *(["-Z"] if has_null else [])]
            run_kcat([*arguments, *more], b"".join(map(_line, run)))
        return []

    def read(
        self, bootstrap: str, topic: str, *, count: int, partition: int = 0, start: int = 0
    ) -> list[Received]:
        arguments = ["-C", "-b", bootstrap, "-t", topic, "-p", f"{partition}", "-o", f"{start}"]
        answer = run_kcat([*arguments, "-c", f"{count}", "-J", "-q"])
        return [_received(line) for line in answer.splitlines()]


def run_kcat(arguments: Sequence[str], given: bytes = b"") -> bytes:
    """The output of kcat. Everything it complains about is in the exception."""
    kcat = shutil.which("kcat")
    if kcat is None:
        raise KcatError("no kcat on PATH: make test installs it on Debian as root; else install it")
    done = subprocess.run(
        [kcat, *arguments], input=given, capture_output=True, timeout=2 * ANSWER_SECONDS
    )
    complaint = done.stderr.decode(errors="replace")
    if done.returncode != 0 or "Delivery failed" in complaint:
        raise KcatError(f"kcat ended with {done.returncode}: {complaint}")
    return done.stdout


def _kind(message: Message) -> tuple[Headers, bool]:
    """In a run with -Z an empty key or value is sent as null, in others as empty."""
    return message.headers, message.value is None or message.key is None


def _header_arguments(headers: Headers) -> list[str]:
    given = []
    for name, value in headers:
        given += ["-H", name if value is None else f"{name}={value.decode()}"]
    return given


def _line(message: Message) -> bytes:
    if {message.key, message.value} == {None, b""}:
        raise ValueError("kcat cannot send one of key and value as null and the other as empty")
    key, value = message.key or b"", message.value or b""
    return key + _KEY_END.encode() + value + _MESSAGE_END.encode()


def _received(line: bytes) -> Received:
    read = json.loads(line)
    names, contents = read.get("headers", [])[::2], read.get("headers", [])[1::2]
    return Received(
        offset=read["offset"],
        value=_bytes(read["payload"]),
        key=_bytes(read["key"]),
        headers=tuple(zip(names, map(_bytes, contents), strict=True)),
        timestamp_ms=read["ts"],
        timestamp_type=LOG_APPEND_TIME if read["tstype"] == "logappend" else CREATE_TIME,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
