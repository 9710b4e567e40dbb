"""Clients that send every request at its limits, as fast as the broker takes it.

Run: python -m tests.faults.hostile_requests <host:port> [--connections 100] [--seconds 10]
[--entries 20000] [--kind fetch], against a broker that may be lost.
`tests/integration/test_memory_bound.py` runs it
beside honest clients.
"""

import argparse
import asyncio
import contextlib
import os
import struct
import time
import typing
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from kio.index import load_request_schema
from tests.unit.kafka.wire.samples import encoded

from stratalog.batch.build import build_batch
from stratalog.batch.header import Codec
from stratalog.batch.records import Record
from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_fields import is_array, nested_schema, without_none

MIB = 1 << 20
WIDE = "wide"
"""A topic with many partitions and some records, which the attacked broker should have."""
PIPELINED = 20
TURN_S = 0.5
_HUGE = 2**31 - 1
_FILLED = 16
"""The partitions of the wide topic that have records."""
_GROWING_RECORDS = 9000
"""Of 400 bytes each, in one batch: nearly the 4 MiB that any batch may grow to."""
_TIME_MS = time.time_ns() // 1_000_000 + 600_000
"""Later than the records of honest clients, so that searches find the records of the attackers."""
_RECONNECT_S = 0.05
_READ_BYTES = MIB

_CHOSEN: Mapping[str, Any] = {
    "acks": 1,
    "max_wait": timedelta(days=20),
    "min_bytes": _HUGE,
    "max_bytes": _HUGE,
    "partition_max_bytes": _HUGE,
    "validate_only": True,
    "num_partitions": 1,
    "replication_factor": 1,
    "resource_type": 2,
    "current_leader_epoch": -1,
    "session_epoch": -1,
    "response_partition_limit": _HUGE,
    "allow_auto_topic_creation": False,
    "transactional_id": None,
    "rack_id": "",
    "client_rack": "",
    "rack": None,
    "session_timeout": timedelta(seconds=30),
    "rebalance_timeout": timedelta(seconds=30),
    "timestamp": 1,
}
"""Fields that matter, by their names in any request."""


class Attack(NamedTuple):
    name: str
    frame: bytes
    reads: bool = True
    """False: the answers are never taken."""
    pauses: bool = False
    """The frame is only the beginning of a request."""


def attacks(most_entries: int, kind: str) -> list[Attack]:
    """All attacks, or those on one API. A request has up to `most_entries`, the broker's limit."""
    every = [
        Attack(key.name.lower(), framed(key, versions.last, most_entries - 3))
        for key, versions in served().items()
        if kind in ("", key.name.lower())
    ]
    wide = _fetch(_FILLED, _HUGE)
    everything = [
        *every,
        *_produces(most_entries),
        Attack("searches by time", _searches()),
        Attack("joins of large members", _join(200 * 1024)),
        Attack("a fetch of many partitions", _fetch(most_entries - 3, _HUGE)),
        Attack("fetches that are not read", _fetch(_FILLED, 1), reads=False),
        Attack("metadata that is not read", framed(ApiKey.METADATA, 12, None), reads=False),
        Attack("fetches behind a fetch that waits", wide * PIPELINED, reads=False),
        Attack("everything", framed(ApiKey.METADATA, 12, None)),
        Attack("a megabyte of names", framed(ApiKey.METADATA, 12, most_entries * 3)),
        Attack("half of a produce", struct.pack(">ih", 90 * MIB, 0) + bytes(4 * MIB), pauses=True),
        Attack("half of a fetch", struct.pack(">ih", 7 * MIB, 1) + bytes(3 * MIB), pauses=True),
    ]
    return [one for one in everything if kind in ("", one.name)]


def framed(key: ApiKey, version: int, entries: int | None) -> bytes:
    """A request whose first array has so many entries; None: null, which stands for everything."""
    schema: Any = load_request_schema(key, version)
    body = encoded(_entity(schema, 0, entries))
    tags = b"\x00" if served()[key].is_flexible(version) else b""
    frame = struct.pack(">hhih", key, version, 1, -1) + tags + body
    return struct.pack(">i", len(frame)) + frame


def _entity(schema: Any, number: int, entries: int | None) -> Any:
    values = {}
    for field in fields(schema):
        if field.name in _CHOSEN:
            values[field.name] = _CHOSEN[field.name]
        elif "tag" in field.metadata and field.default is not MISSING:
            continue
        elif is_array(field):
            values[field.name] = _array(field, number, entries)
            entries = min(entries or 0, 1)
        elif nested := nested_schema(field.type):
            values[field.name] = None if field.default is None else _entity(nested, number, 1)
        else:
            values[field.name] = _primitive(field, number)
    return schema(**values)


def _array(field: Any, number: int, entries: int | None) -> Any:
    if entries is None:
        return None
    kind = typing.get_args(without_none(field.type)[0])[0]
    if is_dataclass(kind):
        return tuple(_entity(kind, number + place, 1) for place in range(entries))
    return tuple(_primitive(field, number + place) for place in range(entries))


def _primitive(field: Any, number: int) -> Any:
    kafka_type = field.metadata["kafka_type"]
    if kafka_type.startswith(("int", "uint")):
        return number % 100
    values: dict[str, Any] = {
        "bool": False,
        "string": f"t{number}",
        "records": b"",
        "bytes": b"." * 100,
        "uuid": uuid.UUID(int=number + 1),
        "timedelta_i32": timedelta(seconds=1),
        "timedelta_i64": timedelta(seconds=1),
        "float64": 0.0,
    }
    return values[kafka_type]


def _fetch(partitions: int, min_bytes: int) -> bytes:
    """Version 4, by hand: partitions of the wide topic from their beginning."""
    body = struct.pack(">iiiib", -1, 2**31 - 1, min_bytes, _HUGE, 0) + struct.pack(">i", 1)
    body += struct.pack(f">h{len(WIDE)}si", len(WIDE), WIDE.encode(), partitions)
    for index in range(partitions):
        body += struct.pack(">iqi", index, 0, _HUGE)
    return _framed_by_hand(ApiKey.FETCH, 4, body)


def _framed_by_hand(key: ApiKey, version: int, body: bytes) -> bytes:
    frame = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(frame)) + frame


def _produces(most_entries: int) -> list[Attack]:
    """Records that are accepted: large ones, ones that grow much, and as many as are allowed."""
    large = _batch([os.urandom(1_000_000)])
    growing = _batch([bytes(400)] * _GROWING_RECORDS, Codec.ZSTD)
    tiny = _batch([b""])
    return [
        Attack("produces of large records", _produce([large] * 2)),
        Attack("produces of records that grow", _produce([growing] * _FILLED)),
        Attack("produces of tiny records", _produce([tiny] * (most_entries - 3))),
        Attack("produces that are not read", _produce([tiny] * _FILLED) * PIPELINED, reads=False),
    ]


def _batch(values: list[bytes], codec: Codec = Codec.NONE) -> bytes:
    records = [Record(place, _TIME_MS + place, None, value) for place, value in enumerate(values)]
    return build_batch(records, codec=codec)


def _produce(batches: list[bytes]) -> bytes:
    """Version 3, by hand: one batch for each partition of the wide topic, and so on in turns."""
    topic = struct.pack(f">h{len(WIDE)}si", len(WIDE), WIDE.encode(), len(batches))
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + topic
    body += b"".join(
        struct.pack(">ii", place % 1000, len(batch)) + batch for place, batch in enumerate(batches)
    )
    return _framed_by_hand(ApiKey.PRODUCE, 3, body)


def _searches() -> bytes:
    """ListOffsets, version 1: the time of the last of the records that grow."""
    time_ms = _TIME_MS + _GROWING_RECORDS - 1
    body = struct.pack(f">iih{len(WIDE)}si", -1, 1, len(WIDE), WIDE.encode(), _FILLED)
    body += b"".join(struct.pack(">iq", index, time_ms) for index in range(_FILLED))
    return _framed_by_hand(ApiKey.LIST_OFFSETS, 1, body)


def _join(size_bytes: int) -> bytes:
    """JoinGroup, version 2: a new member with a large subscription, in a group of all."""
    body = _text("hostile") + struct.pack(">ii", 30_000, 30_000) + _text("") + _text("consumer")
    body += struct.pack(">i", 1) + _text("range") + struct.pack(">i", size_bytes)
    return _framed_by_hand(ApiKey.JOIN_GROUP, 2, body + bytes(size_bytes))


def _text(value: str) -> bytes:
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


async def attack(host: str, port: int, attacks: list[Attack]) -> None:
    """One connection, opened again whenever the broker closes it. All connections turn to the next
    attack at the same time."""
    began_s = time.monotonic()
    while True:
        turns = (time.monotonic() - began_s) / TURN_S
        one = attacks[int(turns) % len(attacks)]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, port, limit=_READ_BYTES)
            try:
                async with asyncio.timeout((1 - turns % 1) * TURN_S):
                    await _send_for_ever(reader, writer, one)
            except TimeoutError:
                pass
            finally:
                writer.transport.abort()
        await asyncio.sleep(_RECONNECT_S)  # The broker may be full for the moment.


async def _send_for_ever(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one: Attack
) -> None:
    while True:
        writer.write(one.frame)
        await writer.drain()
        if one.pauses or not one.reads:
            await asyncio.sleep(1)
        if one.pauses:
            return
        if one.reads:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            while size:
                got = await reader.read(min(size, _READ_BYTES))
                if not got:
                    return
                size -= len(got)


async def run(address: str, connections: int, seconds: float, chosen: list[Attack]) -> None:
    host, port = address.rsplit(":", 1)
    clients = [asyncio.create_task(attack(host, int(port), chosen)) for _ in range(connections)]
    print("attacking", flush=True)
    await asyncio.sleep(seconds)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--entries", type=int, default=20_000, help="broker.max_request_entries")
    parser.add_argument("--kind", default="", help="an API, such as list_offsets")
    asked = parser.parse_args()
    # Real attackers do not share the broker's processors.
    os.nice(19)
    chosen = attacks(asked.entries, asked.kind)
    asyncio.run(run(asked.address, asked.connections, asked.seconds, chosen))


if __name__ == "__main__":
    main()
