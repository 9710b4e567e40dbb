"""What every object store promises, on the one in memory, a folder, and a real S3 server."""

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.contract.lossy_s3 import QUICK, lossy_s3
from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.objects import (
    BadKeyError,
    BadMetadataError,
    Buffer,
    Create,
    Fault,
    FaultyStore,
    KeyConflictError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    Range,
    Replace,
    RetryPolicy,
    ScriptedFaults,
    ShortReadError,
    StoreAccessError,
    StoreRefusedError,
    StoreUnavailableError,
    open_store,
)
from stratalog.objects.retrying import RetryingStore

CLOCK = SystemClock()
MIB = 1024 * 1024


@pytest.fixture(params=["memory", "folder", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        opened = open_store(server.fresh_url(), server.options, clock=CLOCK)
    else:
        url = "memory:" if request.param == "memory" else f"file://{tmp_path}/objects"
        opened = open_store(url, clock=CLOCK)
    yield opened
    await opened.close()


def racers(store: ObjectStore, many: int) -> int:
    """The S3 server is right about races but takes seconds for large ones."""
    return 3 if store.url.startswith("s3:") else many


async def read(store: ObjectStore, key: str) -> bytes:
    return bytes((await store.get(key)).data)


async def nothing() -> AsyncIterator[Buffer]:
    yield b""


async def keys(store: ObjectStore, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [info.key async for info in store.list(prefix, start_after=start_after)]


async def outcome(put: "asyncio.Task[str]") -> str | type[Exception]:
    try:
        return await put
    except (ObjectExistsError, ObjectChangedError) as error:
        return type(error)


async def test_put_stores_the_concatenation_of_its_parts(store: ObjectStore) -> None:
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1], b"", b"four"]
    etag = await store.put("a/b/c", parts)
    stored = await store.get("a/b/c")
    assert bytes(stored.data) == b"onetwothreefour"
    assert stored.info.key == "a/b/c"
    assert stored.info.size_bytes == 15
    assert stored.info.etag == etag


@pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
async def test_an_object_may_be_empty(store: ObjectStore, parts: list[bytes]) -> None:
    await store.put("empty", parts)
    assert await read(store, "empty") == b""
    assert (await store.head("empty")).size_bytes == 0


async def test_more_parts_than_one_system_call_takes_arrive_in_order(store: ObjectStore) -> None:
    parts = [index.to_bytes(4) for index in range(os.sysconf("SC_IOV_MAX") * 2 + 1)]
    await store.put("many", parts)
    assert await read(store, "many") == b"".join(parts)


async def test_a_block_is_put_in_one_request(store: ObjectStore) -> None:
    parts = [os.urandom(MIB // 2) for _ in range(16)]
    etag = await store.put("block", parts)
    assert await read(store, "block") == b"".join(parts)
    if store.url.startswith("s3:"):
        assert not etag.rstrip('"').endswith("-1"), "S3 marks multipart uploads so"


async def test_a_large_object_survives_being_put_in_several_requests(store: ObjectStore) -> None:
    part = os.urandom(MIB)
    await store.put("large", [part] * 65, metadata={"size": "large"})
    stored = await store.get("large")
    assert stored.info.size_bytes == 65 * MIB
    assert bytes(stored.data[64 * MIB :]) == part
    assert stored.info.metadata == {"size": "large"}


async def test_the_callers_buffer_is_its_own_again_after_a_put(store: ObjectStore) -> None:
    buffer = bytearray(b"before")
    await store.put("x", [buffer])
    buffer[:] = b"after!"
    assert await read(store, "x") == b"before"


async def test_head_get_and_list_tell_the_same(store: ObjectStore) -> None:
    before_ms = CLOCK.now_ms()
    etag = await store.put("x", [b"data"])
    head = await store.head("x")
    listed = [info async for info in store.list("")]
    assert head == (await store.get("x")).info == listed[0]
    assert head.etag == etag
    assert before_ms - 2000 < head.modified_ms < CLOCK.now_ms() + 2000


async def test_metadata_comes_back_as_it_was_given(store: ObjectStore) -> None:
    metadata = {"epoch": "7", "made-by": "broker 3; v=1"}
    await store.put("created", [b"1"], mode=Create(), metadata=metadata)
    await store.put("overwritten", [b"1"], metadata=metadata)
    assert (await store.head("created")).metadata == metadata
    assert (await store.get("created")).info.metadata == metadata
    assert (await store.head("overwritten")).metadata == metadata
    assert await keys(store) == ["created", "overwritten"]


async def test_an_overwrite_replaces_data_and_metadata_together(store: ObjectStore) -> None:
    first = await store.put("x", [b"old"], metadata={"version": "1"})
    second = await store.put("x", [b"new!"], metadata={"version": "2"})
    assert first != second
    stored = await store.get("x")
    assert (bytes(stored.data), stored.info.metadata) == (b"new!", {"version": "2"})
    await store.put("x", [b"newest"])
    stored = await store.get("x")
    assert (bytes(stored.data), stored.info.metadata) == (b"newest", {})


async def test_create_refuses_a_key_that_is_taken(store: ObjectStore) -> None:
    await store.put("x", [b"mine"], mode=Create(), metadata={"owner": "me"})
    with pytest.raises(ObjectExistsError, match="x"):
        await store.put("x", [b"mine"], mode=Create(), metadata={"owner": "me"})
    assert await read(store, "x") == b"mine"
    await store.delete(["x"])
    await store.put("x", [b"yours"], mode=Create())
    assert await read(store, "x") == b"yours"


async def test_of_many_creators_one_wins(store: ObjectStore) -> None:
    for attempt in range(3):
        puts = [
            asyncio.create_task(
                store.put(f"race/{attempt}", [b"%d" % racer], mode=Create(), metadata={"r": "1"})
            )
            for racer in range(racers(store, 20))
        ]
        outcomes = await asyncio.gather(*map(outcome, puts))
        winners = [racer for racer, result in enumerate(outcomes) if isinstance(result, str)]
        assert len(winners) == 1
        assert await read(store, f"race/{attempt}") == b"%d" % winners[0]


async def test_replace_needs_the_version_that_is_there(store: ObjectStore) -> None:
    first = await store.put("x", [b"1"])
    second = await store.put("x", [b"2"], mode=Replace(etag=first), metadata={"version": "2"})
    with pytest.raises(ObjectChangedError):
        await store.put("x", [b"3"], mode=Replace(etag=first))
    stored = await store.get("x")
    assert (bytes(stored.data), stored.info.etag) == (b"2", second)
    assert stored.info.metadata == {"version": "2"}


async def test_replace_of_nothing_is_refused(store: ObjectStore) -> None:
    etag = await store.put("x", [b"1"])
    await store.delete(["x"])
    with pytest.raises(ObjectChangedError):
        await store.put("x", [b"2"], mode=Replace(etag=etag))
    assert await keys(store) == []


async def test_of_many_replacers_one_wins(store: ObjectStore) -> None:
    etag = await store.put("x", [b"start"])
    puts = [
        asyncio.create_task(store.put("x", [b"%d" % racer], mode=Replace(etag=etag)))
        for racer in range(racers(store, 20))
    ]
    outcomes = await asyncio.gather(*map(outcome, puts))
    winners = [racer for racer, result in enumerate(outcomes) if isinstance(result, str)]
    assert len(winners) == 1
    assert await read(store, "x") == b"%d" % winners[0]


async def test_readers_never_see_a_part_of_a_put(store: ObjectStore) -> None:
    versions = [bytes([value]) * MIB for value in range(4)]
    await store.put("x", [versions[0]], metadata={"value": "0"})

    async def write() -> None:
        for value, version in enumerate(versions):
            await store.put("x", [version[: MIB // 2]] * 2, metadata={"value": str(value)})

    writing = asyncio.create_task(write())
    while not writing.done():
        stored = await store.get("x")
        assert bytes(stored.data) == versions[int(stored.info.metadata["value"])]
    await writing


async def test_what_is_not_there_is_not_found(store: ObjectStore) -> None:
    await store.put("folder/x", [b"1"])
    for key in ("nothing", "folder", "folder/y"):
        with pytest.raises(ObjectNotFoundError, match=key):
            await store.get(key)
        with pytest.raises(ObjectNotFoundError, match=key):
            await store.head(key)
        with pytest.raises(ObjectNotFoundError, match=key):
            await store.get_ranges(key, [Range(0, 1)])
        with pytest.raises(ObjectNotFoundError):
            await store.copy(key, "target")
    assert await keys(store) == ["folder/x"]


@pytest.mark.parametrize("mapped", [False, True], ids=["read", "mapped"])
async def test_ranges_come_back_in_the_order_they_were_asked_for(
    store: ObjectStore, mapped: bool
) -> None:
    data = os.urandom(3 * MIB)
    await store.put("x", [data])
    wanted = [
        Range(2 * MIB, 3 * MIB),
        Range(0, 1),
        Range(10, 20),
        Range(15, 30),
        Range(12, 13),
        Range(3 * MIB - 1, 3 * MIB),
        Range(0, 3 * MIB),
    ]
    answers = await store.get_ranges("x", wanted, mapped=mapped)
    assert [bytes(answer) for answer in answers] == [data[r.start : r.end] for r in wanted]
    assert await store.get_ranges("x", [], mapped=mapped) == []
    with pytest.raises(ShortReadError, match="'x'"):
        await store.get_ranges("x", [Range(MIB, 3 * MIB + 1)], mapped=mapped)
    with pytest.raises(ObjectNotFoundError):
        await store.get_ranges("y", [Range(0, 1)], mapped=mapped)


async def test_what_was_mapped_stays_as_it_was(store: ObjectStore) -> None:
    """Whatever becomes of the object: a scan may still be looking at it."""
    data = os.urandom(MIB)
    await store.put("x", [data])
    [replaced] = await store.get_ranges("x", [Range(1, MIB)], mapped=True)
    await store.put("x", [os.urandom(10)])
    assert bytes(replaced) == data[1:]
    await store.put("x", [data])
    [deleted] = await store.get_ranges("x", [Range(1, MIB)], mapped=True)
    await store.delete(["x"])
    assert bytes(deleted) == data[1:]


async def test_ranges_are_read_into_the_memory_that_is_given(store: ObjectStore) -> None:
    data = os.urandom(MIB)
    await store.put("x", [data])
    wanted = [Range(500, 900_000), Range(0, 1), Range(10, 20), Range(15, 30), Range(900_000, MIB)]
    into = [memoryview(bytearray(r.end - r.start)) for r in wanted]
    answers = await store.get_ranges("x", wanted, into=into)
    assert [bytes(view) for view in into] == [data[r.start : r.end] for r in wanted]
    assert all(answer is view for answer, view in zip(answers, into, strict=True))
    with pytest.raises(ShortReadError, match="'x'"):
        await store.get_ranges("x", [Range(MIB - 1, MIB + 1)], into=[memoryview(bytearray(2))])
    assert await store.get_ranges("x", [], into=[]) == []


async def test_a_large_range_is_one_request_and_larger_ones_are_several(
    s3_server: S3Server,
) -> None:
    data = os.urandom(24 * MIB)
    async with lossy_s3(s3_server, 0) as (store, proxy):
        await store.put("x", [data])
        for wanted, requests in [
            ([Range(1, 16 * MIB + 1)], 1),
            ([Range(0, 8 * MIB), Range(8 * MIB, 16 * MIB)], 1),
            ([Range(0, 12 * MIB), Range(12 * MIB, 24 * MIB)], 2),
            ([Range(0, 24 * MIB)], 1),
        ]:
            proxy.requests.clear()
            answers = await store.get_ranges("x", wanted)
            assert [bytes(answer) for answer in answers] == [data[r.start : r.end] for r in wanted]
            assert len(proxy.requests) == requests


@pytest.mark.parametrize("bad", [Range(9, 11), Range(10, 11), Range(50, 60), Range(0, 3 * MIB)])
async def test_a_range_past_the_end_is_damage(store: ObjectStore, bad: Range) -> None:
    await store.put("x", [b"0123456789"])
    with pytest.raises(ShortReadError, match="'x'"):
        await store.get_ranges("x", [Range(0, 1), bad])
    assert [bytes(b) for b in await store.get_ranges("x", [Range(0, 1), Range(9, 10)])] == [
        b"0",
        b"9",
    ]


async def test_list_gives_all_keys_with_the_prefix_in_order(store: ObjectStore) -> None:
    everything = ["A", "a/1", "a/2/y", "a/2/z", "ab", "b/c/d#", "b/c/e", "c c/%41", "é/x"]
    for key in reversed(everything):
        await store.put(key, [b""])
    assert await keys(store) == sorted(everything)
    for prefix in ("a", "a/", "a/2", "a/2/", "a/2/z", "b", "b/c/", "é", "z", "a/3"):
        expected = sorted(key for key in everything if key.startswith(prefix))
        assert await keys(store, prefix) == expected, prefix


async def test_list_starts_after_any_text(store: ObjectStore) -> None:
    everything = ["a/1", "a/10/x", "a/20/y", "a/3", "b/1", "c"]
    for key in everything:
        await store.put(key, [b""])
    for start in ("a", "a/1", "a/10", "a/10/w", "a/10/x", "a/20", "a/9", "b", "b/0", "c", "d"):
        expected = [key for key in everything if key > start]
        assert await keys(store, start_after=start) == expected, start
        within = [key for key in expected if key.startswith("a/")]
        assert await keys(store, "a/", start_after=start) == within, start


async def test_list_goes_on_over_many_pages(store: ObjectStore) -> None:
    everything = [f"n/{number:04}" for number in range(1201)]
    for start in range(0, len(everything), 100):
        await asyncio.gather(*(store.put(k, [b""]) for k in everything[start : start + 100]))
    assert await keys(store, "n/") == everything
    await store.delete(everything)
    assert await keys(store) == []


async def test_copy_takes_data_and_metadata_along(store: ObjectStore) -> None:
    await store.put("source", [b"data"], metadata={"epoch": "7"})
    await store.put("old", [b"old"], metadata={"other": "1"})
    await store.copy("source", "new/target")
    await store.copy("source", "old")
    for key in ("new/target", "old"):
        stored = await store.get(key)
        assert (bytes(stored.data), stored.info.metadata) == (b"data", {"epoch": "7"})
    await store.delete(["source"])
    assert await read(store, "old") == b"data"


async def test_a_conditional_copy_keeps_its_condition(store: ObjectStore) -> None:
    await store.put("source", [b"data"], metadata={"epoch": "7"})
    etag = await store.put("taken", [b"old"])
    with pytest.raises(ObjectExistsError):
        await store.copy("source", "taken", mode=Create())
    with pytest.raises(ObjectChangedError):
        await store.copy("source", "taken", mode=Replace(etag="another"))
    assert await read(store, "taken") == b"old"
    await store.copy("source", "taken", mode=Replace(etag=etag))
    await store.copy("source", "free", mode=Create())
    assert await read(store, "taken") == await read(store, "free") == b"data"
    assert (await store.head("free")).metadata == {"epoch": "7"}


async def test_delete_of_what_is_gone_is_a_success(store: ObjectStore) -> None:
    await store.put("a/x", [b"1"], metadata={"k": "v"})
    await store.put("a/y", [b"1"])
    await store.delete(["a/x", "a/never-there", "never/there"])
    await store.delete(["a/x"])
    await store.delete([])
    assert await keys(store) == ["a/y"]
    await store.put("a/x", [b"2"])
    assert (await store.get("a/x")).info.metadata == {}


@pytest.mark.parametrize(
    "key",
    [
        *("", "/x", "x/", "a//b", "..", "a/../b", "./x", "a/.", "\x00", "a\n", "\ud800"),
        *(".stratalog/tmp/x", "k" * 256, "/".join(["k" * 179] * 5) + "kk"),
    ],
)
async def test_a_key_that_not_every_store_could_hold_is_refused(
    store: ObjectStore, key: str
) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.put(key, [b""]),
        lambda: store.put_stream(key, nothing()),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.get_ranges(key, []),
        lambda: store.copy(key, "ok"),
        lambda: store.copy("ok", key),
        lambda: store.delete([key]),
    ]
    for call in calls:
        with pytest.raises(BadKeyError):
            await call()


async def test_the_longest_key_fits(store: ObjectStore) -> None:
    key = "/".join(["k" * 179] * 5) + "k"
    for longest in (key, "k" * 255):
        await store.put(longest, [b"1"])
        assert await read(store, longest) == b"1"


@pytest.mark.parametrize("metadata", [{"Up": "1"}, {"a_b": "1"}, {"": "1"}, {"a": "é"}])
async def test_metadata_that_not_every_store_could_hold_is_refused(
    store: ObjectStore, metadata: dict[str, str]
) -> None:
    with pytest.raises(BadMetadataError):
        await store.put("x", [b""], metadata=metadata)


async def test_metadata_has_a_largest_size(store: ObjectStore) -> None:
    await store.put("x", [b""], metadata={"k": "v" * 1900})
    assert (await store.head("x")).metadata == {"k": "v" * 1900}
    with pytest.raises(BadMetadataError, match="longer"):
        await store.put("x", [b""], metadata={"k": "v" * 2048})


@pytest.mark.parametrize("mode", ["create", "replace"])
async def test_a_conditional_put_whose_reply_was_lost_knows_its_own_object(
    store: ObjectStore, mode: str
) -> None:
    script = ScriptedFaults([("put", Fault.LOST_REPLY), ("put", Fault.LOST_REPLY)])
    faulty = FaultyStore(store, script, clock=CLOCK)
    patient = RetryingStore(faulty, clock=CLOCK, entropy=os.urandom, policy=QUICK)
    if mode == "create":
        etag = await patient.put("x", [b"mine"], mode=Create(), metadata={"k": "v"})
    else:
        first = await store.put("x", [b"old"])
        etag = await patient.put("x", [b"mine"], mode=Replace(etag=first), metadata={"k": "v"})
    assert not script.remaining
    stored = await store.get("x")
    assert (bytes(stored.data), stored.info.etag) == (b"mine", etag)
    assert stored.info.metadata == {"k": "v"}


async def test_a_create_whose_request_was_lost_does_not_take_a_strangers_object_for_its_own(
    store: ObjectStore,
) -> None:
    class StrangerIsFaster(FaultyStore):
        async def _before(self, operation: str, key: str) -> Fault | None:
            if script.remaining:
                await store.put(key, [b"mine"], mode=Create())
            return await super()._before(operation, key)

    script = ScriptedFaults([("put", Fault.UNAVAILABLE)])
    faulty = StrangerIsFaster(store, script, clock=CLOCK)
    patient = RetryingStore(faulty, clock=CLOCK, entropy=os.urandom, policy=QUICK)
    with pytest.raises(ObjectExistsError):
        await patient.put("x", [b"mine"], mode=Create())


# What follows concerns one kind of store only.


@pytest.mark.parametrize("url", ["memory:", "file"])
async def test_keys_sort_by_bytes_where_one_folders_name_begins_another(
    url: str, tmp_path: Path
) -> None:
    """Not on S3: the server that the tests use sorts folder by folder."""
    store = open_store(url if url == "memory:" else f"file:{tmp_path}", clock=CLOCK)
    everything = ["a b", "a-b/1", "a.b", "a/1", "a/2/z", "a0", "ab"]
    for key in everything:
        await store.put(key, [b""])
    assert await keys(store) == everything
    for start in [*everything, "a", "a-", "a-b", "a/", "a/2"]:
        assert await keys(store, start_after=start) == [k for k in everything if k > start]
    await store.close()


async def test_a_folder_says_that_a_key_cannot_be_object_and_folder(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}", clock=CLOCK)
    await store.put("x", [b"1"])
    await store.put("y/z", [b"1"])
    for key in ("x/y", "x/y/z", "y"):
        with pytest.raises(KeyConflictError):
            await store.put(key, [b"2"])
        with pytest.raises(KeyConflictError):
            await store.put(key, [b"2"], mode=Create())
    assert await keys(store) == ["x", "y/z"]
    await store.close()


@pytest.mark.parametrize("losses", [1, 3])
async def test_s3_create_whose_reply_is_lost_on_the_wire_knows_its_own_object(
    s3_server: S3Server, losses: int
) -> None:
    async with lossy_s3(s3_server, losses) as (store, proxy):
        etag = await store.put("x", [b"mine"], mode=Create())
        assert proxy.losses == 0
        assert (await store.head("x")).etag == etag
        with pytest.raises(ObjectExistsError):
            await store.put("x", [b"mine"], mode=Create())


async def test_s3_that_never_answers_is_unavailable(s3_server: S3Server) -> None:
    once = RetryPolicy(attempts=1)
    async with lossy_s3(s3_server, 99, once) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.put("x", [b"1"], mode=Create())


async def test_s3_encrypts_with_its_own_key(s3_server: S3Server) -> None:
    options = {**s3_server.options, "server_side_encryption": "AES256"}
    store = open_store(s3_server.fresh_url(), options, clock=CLOCK)
    await store.put("x", [b"secret"], mode=Create(), metadata={"k": "v"})
    await store.copy("x", "y")
    assert await read(store, "y") == b"secret"
    assert (await store.head("x")).metadata == {"k": "v"}


async def test_s3_encrypts_with_the_customers_key(s3_server: S3Server, s3_url: str) -> None:
    def with_key(key: bytes) -> ObjectStore:
        options = {
            **s3_server.options,
            "server_side_encryption": "sse-c",
            "sse_customer_key_base64": b64encode(key).decode(),
        }
        return open_store(s3_url, options, clock=CLOCK)

    store = with_key(b"k" * 32)
    await store.put("x", [b"secret"], mode=Create())
    assert [bytes(b) for b in await store.get_ranges("x", [Range(1, 3)])] == [b"ec"]
    await store.copy("x", "y")
    assert await read(store, "y") == b"secret"
    with pytest.raises(StoreAccessError):
        await with_key(b"z" * 32).get("x")
    with pytest.raises(StoreRefusedError):
        await open_store(s3_url, s3_server.options, clock=CLOCK).get("x")


@pytest.mark.parametrize("option", ["access_key_id", "secret_access_key"])
async def test_s3_refusals_name_no_secret(s3_server: S3Server, s3_url: str, option: str) -> None:
    options = {**s3_server.options, option: "something-wrong"}
    store = open_store(s3_url, options, clock=CLOCK)
    with pytest.raises(StoreAccessError, match=r"403.*credentials") as caught:
        await store.put("x", [b"1"])
    assert caught.value.__cause__ is None
    assert "something-wrong" not in str(caught.value)
    assert s3_server.secret_key not in str(caught.value)


async def test_s3_without_tls_must_be_allowed(s3_server: S3Server, s3_url: str) -> None:
    options = {**s3_server.options, "allow_http": "false"}
    with pytest.raises(StoreRefusedError, match="allow_http"):
        await open_store(s3_url, options, clock=CLOCK).head("x")


async def test_s3_that_is_not_there_is_unavailable(s3_server: S3Server, s3_url: str) -> None:
    options = {**s3_server.options, "endpoint": "http://127.0.0.1:1"}
    store = open_store(s3_url, options, clock=CLOCK, retries=QUICK)
    with pytest.raises(StoreUnavailableError):
        await store.head("x")
