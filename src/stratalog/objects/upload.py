"""Putting a stream into a store behind a network: in parts, several under way at once.

An upload that cannot complete is aborted. An unfinished upload stays only if the abort fails too,
or this process dies: let the lifecycle rules of the bucket remove it after some days.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import obstore

from stratalog.objects.obstore_errors import explained
from stratalog.objects.store import Buffer
from stratalog.objects.streams import ended, gathered, settled
from stratalog.objects.traffic_counts import CountTraffic

if TYPE_CHECKING:
    from obstore import AsyncWritableFile

    from stratalog.objects.remote import Client

PART_BYTES = 8 * 1024 * 1024
"""S3 allows 10,000 parts, so this reaches 78 GiB; no segment of a log is larger than 2 GiB."""

PARTS_UNDER_WAY = 4
"""One connection to S3 carries some 50 to 100 MB/s. With the parts that are being gathered a
stream holds up to six in memory."""

PIECE_BYTES = 1024 * 1024
"""Parts are handed over in pieces: smaller buffers are copied together, larger ones are cut."""


def put_requests(size_bytes: int, part_bytes: int = PART_BYTES) -> int:
    """Count the requests of a put: one if the object is smaller than a part, else one for each
    part, one before them and one after."""
    return 1 if size_bytes < part_bytes else -(-size_bytes // part_bytes) + 2


async def upload_stream(
    client: Client, key: str, parts: AsyncIterable[Buffer], count: CountTraffic
) -> int:
    """Put the buffers of `parts` and return their size. An object below a part takes one request.

    Only the client can retry its requests: buffers cannot be yielded again.

    """
    async with aclosing(gathered(parts, PIECE_BYTES)) as pieces:
        first = await _first_part(pieces)
        if len(first) < PART_BYTES:
            count("put_stream", requests=1)
            with explained("put", key):
                await obstore.put_async(client, key, first, use_multipart=False)
            return len(first)
        return await _upload_parts(client, key, first, pieces, count)


async def _first_part(pieces: AsyncIterator[list[Buffer]]) -> bytes:
    first: list[Buffer] = []
    held_bytes = 0
    async for piece in pieces:
        first += piece
        held_bytes += sum(len(buffer) for buffer in piece)
        if held_bytes == PART_BYTES:
            break
    return b"".join(first)


async def _upload_parts(
    client: Client,
    key: str,
    first: bytes,
    pieces: AsyncIterator[list[Buffer]],
    count: CountTraffic,
) -> int:
    size_bytes = 0
    writer = obstore.open_writer_async(
        client, key, buffer_size=PART_BYTES, max_concurrency=PARTS_UNDER_WAY
    )
    try:
        # The request that opens the upload is not broken off: its name would never be known.
        with explained("put", key):
            size_bytes = await settled(writer.write(first))
        async for piece in pieces:
            size_bytes += await _write(writer, key, piece)
    except BaseException as error:
        # The last request aborts the upload.
        count("put_stream", requests=put_requests(max(size_bytes, PART_BYTES)))
        await ended(asyncio.ensure_future(writer.__aexit__(type(error), error, None)))
        raise
    count("put_stream", requests=put_requests(size_bytes))
    with explained("put", key):
        await settled(writer.close())
    return size_bytes


async def _write(writer: AsyncWritableFile, key: str, piece: list[Buffer]) -> int:
    """Write a piece. Waits while too many parts are under way, and raises if one has failed."""
    with explained("put", key):
        return await writer.write(piece[0] if len(piece) == 1 else b"".join(piece))
