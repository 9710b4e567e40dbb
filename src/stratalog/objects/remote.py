"""Object stores behind a network, and the one in memory, through obstore.

Keys come back from `list` in the order of the server. S3, Google and Azure list by bytes; some
compatible servers sort folder by folder, which differs only where one folder's name begins
another's. Our layouts have no such names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from stratalog.errors import StratalogError
from stratalog.ids import Entropy
from stratalog.objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreUnavailableError,
)
from stratalog.objects.keys import check_key, check_metadata, check_prefix
from stratalog.objects.obstore_errors import explained
from stratalog.objects.ranges import REMOTE_GAP_BYTES, copied_into, cut_answers, plan_reads
from stratalog.objects.store import (
    Buffer,
    Create,
    ObjectInfo,
    Overwrite,
    PutMode,
    Range,
    Replace,
    StoredObject,
)
from stratalog.objects.traffic_counts import CountTraffic, uncounted
from stratalog.objects.upload import put_requests, upload_stream
from stratalog.objects.write_id import WRITE_ID, with_write_id, without_write_id

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, PutResult
    from obstore import PutMode as ClientMode

Client = S3Store | GCSStore | AzureStore | MemoryStore

MULTIPART_FROM_BYTES = 64 * 1024 * 1024
"""Larger unconditional puts go up in parts, each of which has the client's timeout to itself and
is repeated alone. Smaller ones take one request instead of four and leave no unfinished uploads."""

MULTIPART_CHUNK_BYTES = 16 * 1024 * 1024
"""S3 allows 10,000 parts, so this reaches 156 GiB."""

LIST_CHUNK = 1000
"""The page size of S3."""

DELETE_CHUNK = 1000
"""The most that S3 deletes in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Differences between the services."""

    keeps_buffers: bool = False
    """The memory store keeps references to the caller's buffers, so it is given a copy."""
    update_by_generation: bool = False
    """Google compares generations, not ETags, so the generation serves as our ETag."""
    underscored_metadata: bool = False
    """Azure allows no dash in a metadata name."""
    deleted_at_once: int = DELETE_CHUNK
    """Keys that one request deletes."""


class RemoteStore:
    def __init__(
        self,
        client: Client,
        url: str,
        *,
        traits: Traits,
        entropy: Entropy,
        streaming: Client | None = None,
    ) -> None:
        """`streaming` is a client that repeats requests as often as it takes: streams need one."""
        self._client = client
        self._streaming = streaming or client
        self._url = url
        self._traits = traits
        self._entropy = entropy
        self._count: CountTraffic = uncounted

    def count_with(self, count: CountTraffic) -> None:
        """Requests that the client repeats by itself are not counted: it does not report them."""
        self._count = count

    @property
    def url(self) -> str:
        return self._url

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        check_key(key)
        check_metadata(metadata or {})
        marked = with_write_id(metadata or {}, mode, self._entropy)
        try:
            return self._etag(await self._send(key, parts, mode, marked))
        except (ObjectExistsError, ObjectChangedError) as refusal:
            return await self._recognise(key, marked.get(WRITE_ID), refusal)

    async def _send(
        self, key: str, parts: Sequence[Buffer], mode: PutMode, metadata: dict[str, str]
    ) -> PutResult:
        size_bytes = sum(len(part) for part in parts)
        large = isinstance(mode, Overwrite) and size_bytes >= MULTIPART_FROM_BYTES
        requests = put_requests(size_bytes, MULTIPART_CHUNK_BYTES) if large else 1
        self._count("put", requests=requests)
        with explained("put", key):
            answer = await obstore.put_async(
                self._client,
                key,
                b"".join(parts) if self._traits.keeps_buffers else parts,
                attributes=self._rename(metadata, "-", "_"),
                mode=self._mode(mode),
                use_multipart=large,
                chunk_size=MULTIPART_CHUNK_BYTES,
            )
        self._count("put", size_bytes=size_bytes)
        return answer

    def _mode(self, mode: PutMode) -> ClientMode:
        match mode:
            case Overwrite():
                return "overwrite"
            case Create():
                return "create"
            case Replace(etag=etag):
                by_generation = self._traits.update_by_generation
                return {"version": etag} if by_generation else {"e_tag": etag}

    async def _recognise(self, key: str, write_id: str | None, refusal: StratalogError) -> str:
        """Find out if this put itself took or changed the key before its reply was lost.

        S3 also answers 409 to one of two puts that collide, whatever their mode, and obstore calls
        that a taken key. If nothing is there to take it, the put may simply be repeated.
        """
        collided = StoreUnavailableError(f"put {key!r}: another put was in the way")
        if write_id is None:
            raise collided from None
        try:
            found = await self._open(key, head=True)
        except ObjectNotFoundError:
            raise (collided if isinstance(refusal, ObjectExistsError) else refusal) from None
        if self._attributes(found).get(WRITE_ID) != write_id:
            raise refusal from None
        return self._etag(found.meta)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        check_key(key)
        size_bytes = await upload_stream(self._streaming, key, parts, self._count)
        self._count("put_stream", size_bytes=size_bytes)
        return size_bytes

    async def get(self, key: str) -> StoredObject:
        found = await self._open(key)
        with explained("get", key):
            data = memoryview(await found.bytes_async())
        self._count("get", size_bytes=len(data))
        return StoredObject(info=self._full_info(key, found), data=data)

    async def head(self, key: str) -> ObjectInfo:
        return self._full_info(key, await self._open(key, head=True))

    async def _open(self, key: str, *, head: bool = False) -> GetResult:
        check_key(key)
        operation = "head" if head else "get"
        self._count(operation, requests=1)
        with explained(operation, key):
            return await obstore.get_async(self._client, key, options={"head": head})

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,  # noqa: ARG002
    ) -> list[Buffer]:
        check_key(key)
        plan = plan_reads(ranges, REMOTE_GAP_BYTES)
        self._count("get_ranges", requests=len(plan.requests))
        answers = await self._read(key, plan.requests)
        self._count("get_ranges", size_bytes=sum(len(answer) for answer in answers))
        cut = cut_answers(key, ranges, plan, answers)
        return cut if into is None else copied_into(cut, into)

    async def _read(self, key: str, requests: Sequence[Range]) -> list[Buffer]:
        """Send all requests in parallel. obstore joins adjoining ranges, so neighbours go apart."""
        answers: list[Buffer] = [b""] * len(requests)
        answers[::2], answers[1::2] = await asyncio.gather(
            self._read_apart(key, requests[::2]), self._read_apart(key, requests[1::2])
        )
        return answers

    async def _read_apart(self, key: str, requests: Sequence[Range]) -> list[Buffer]:
        if not requests:
            return []
        with explained("get", key):
            answers = await obstore.get_ranges_async(
                self._client,
                key,
                starts=[request.start for request in requests],
                ends=[request.end for request in requests],
                coalesce=0,
            )
        return [memoryview(answer) for answer in answers]

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """List a folder, and filter by the rest of the prefix: obstore takes whole folders only."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        with explained("list", prefix):
            stream = obstore.list(
                self._client,
                folder or None,
                offset=_just_before(start_after) if start_after else None,
                chunk_size=LIST_CHUNK,
            )
            pages = 0
            async for page in stream:
                pages += 1
                self._count("list", requests=1)
                for meta in page:
                    if meta["path"].startswith(prefix) and meta["path"] > (start_after or ""):
                        yield self._info(meta["path"], meta, {})
            if not pages:
                self._count("list", requests=1)

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        """Copy in the store, or, with a condition, by a get and a put: most servers ignore
        conditions on a copy."""
        check_key(source)
        check_key(target)
        if isinstance(mode, Overwrite):
            self._count("copy", requests=1)
            with explained("copy", source):
                await obstore.copy_async(self._client, source, target)
            return
        stored = await self.get(source)
        await self.put(target, [stored.data], mode=mode, metadata=stored.info.metadata)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for start in range(0, len(keys), DELETE_CHUNK):
            await self._delete_chunk(keys[start : start + DELETE_CHUNK])

    async def _delete_chunk(self, keys: Sequence[str]) -> None:
        """Delete keys together, or one by one where Google or Azure refuse keys that are gone."""
        self._count("delete", requests=-(-len(keys) // self._traits.deleted_at_once))
        try:
            with explained("delete", keys[0]):
                await obstore.delete_async(self._client, [*keys])
        except ObjectNotFoundError:
            if len(keys) > 1:
                for key in keys:
                    await self._delete_chunk([key])

    async def close(self) -> None:
        """The client closes its connections when it is dropped."""

    def _full_info(self, key: str, found: GetResult) -> ObjectInfo:
        return self._info(key, found.meta, without_write_id(self._attributes(found)))

    def _info(self, key: str, meta: ObjectMeta, metadata: Mapping[str, str]) -> ObjectInfo:
        return ObjectInfo(
            key=key,
            size_bytes=meta["size"],
            modified_ms=round(meta["last_modified"].timestamp() * 1000),
            etag=self._etag(meta),
            metadata=metadata,
        )

    def _etag(self, answer: PutResult | ObjectMeta) -> str:
        etag, generation = answer["e_tag"], answer["version"]
        return (generation if self._traits.update_by_generation else etag) or etag or ""

    def _attributes(self, found: GetResult) -> dict[str, str]:
        """Return user metadata. Names that begin with a capital are HTTP headers."""
        own = {name: value for name, value in found.attributes.items() if name[0].islower()}
        return self._rename(own, "_", "-")

    def _rename(self, metadata: Mapping[str, str], old: str, new: str) -> dict[str, str]:
        if not self._traits.underscored_metadata:
            return dict(metadata)
        return {name.replace(old, new): value for name, value in metadata.items()}


def _just_before(key: str) -> str:
    """Make a start for a listing that is a little smaller than the key, and surely no folder.

    A listing after the name of a folder leaves out the contents of the folder in SeaweedFS.
    """
    last = key[-1]
    if not (last.isascii() and last.isalnum()):
        return key
    return f"{key[:-1]}{'.' if last == '0' else chr(ord(last) - 1)}~"
