import asyncio
import pickle
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.pipeline.world import WatchedStore, World, merge_of, sent, swapped

from stratalog.clock import SystemClock
from stratalog.objects.errors import StoreAccessError
from stratalog.objects.folder import THREADS
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening import workers
from stratalog.opening.keys import KeyTexts
from stratalog.opening.marker import MARKER_KEY, StoreMarker, encode_marker, read_marker
from stratalog.opening.stores import StoreAddresses
from stratalog.opening.workers import WorkerAccess
from stratalog.pipeline.hosting.run_task import run_in_loop, run_task
from stratalog.pipeline.workplace import Workplace
from stratalog.segment.errors import KeyFileError

GOLDEN = Path(__file__).parents[2] / "golden"


def workplace(folder: Path) -> Workplace:
    return Workplace(access=WorkerAccess(stores=StoreAddresses(objects_url=f"file:{folder}")))


def with_segments_in(place: Workplace, folder: Path) -> Workplace:
    stores = replace(place.access.stores, segments_url=f"file:{folder}")
    return replace(place, access=replace(place.access, stores=stores))


def encrypting(place: Workplace, keys: KeyTexts) -> Workplace:
    encoding = replace(place.access.encoding, encrypt=True)
    return replace(place, access=replace(place.access, encoding=encoding, keys=keys))


async def written(folder: Path) -> World:
    world = World(store=WatchedStore(open_store(f"file:{folder}", clock=SystemClock())))
    for _ in range(3):
        await world.commit(*(sent(each, 2, 100) for each in range(5)))
    return world


async def test_tasks_and_answers_cross_processes(tmp_path: Path) -> None:
    world = await written(tmp_path)
    place = pickle.loads(pickle.dumps(workplace(tmp_path)))
    split = pickle.loads(pickle.dumps(world.split_task()))
    done = pickle.loads(pickle.dumps(await run_in_loop(split, place)))
    assert [*swapped(world, done)] == [0, 1, 2, 3, 4]
    task = pickle.loads(pickle.dumps(merge_of(world.segments())))
    merged = pickle.loads(pickle.dumps(await run_in_loop(task, place)))
    assert [log.built.last_offset for log in merged.made] == [5] * 5
    for log, rows in zip(merged.made, world.rows.values(), strict=True):
        assert await world.log_in_store(log.key_base) == await world.log_of(rows)
    await world.store.close()


async def test_a_task_tells_what_it_cost(tmp_path: Path) -> None:
    world = await written(tmp_path)
    await world.store.close()
    effort = (await run_in_loop(merge_of(world.segments()), workplace(tmp_path))).effort
    total = sum(row.byte_size for rows in world.rows.values() for row in rows)
    assert (effort.bytes_read, effort.bytes_written) == (total, total)
    assert effort.requests == 3 + 5
    assert effort.seconds > 0


async def test_segments_may_have_a_store_of_their_own(tmp_path: Path) -> None:
    world = await written(tmp_path / "blocks")
    await world.store.close()
    place = with_segments_in(workplace(tmp_path / "blocks"), tmp_path / "cold")
    done = await run_in_loop(merge_of(world.segments()), place)
    assert all((tmp_path / "cold" / f"{log.key_base}.log").is_file() for log in done.made)
    assert done.effort.requests == 3 + 5
    assert done.effort.bytes_written == sum(log.built.size_bytes for log in done.made)


async def test_more_segments_than_threads_are_written_at_the_same_time(tmp_path: Path) -> None:
    """The folder's threads both read and write: none may wait for another one."""
    world = World(store=WatchedStore(open_store(f"file:{tmp_path}", clock=SystemClock())))
    for _ in range(4):
        await world.commit(*(sent(each, 1, 2000) for each in range(2 * THREADS + 1)))
    async with asyncio.timeout(60):
        done = await run_in_loop(merge_of(world.segments(at=2)), workplace(tmp_path))
    assert len(done.made) == 2 * (2 * THREADS + 1)
    assert not done.failed
    await world.store.close()


async def test_keys_come_with_the_workplace(tmp_path: Path) -> None:
    world = await written(tmp_path)
    await world.store.close()
    pem = (GOLDEN / "test-only-public.pem").read_text()
    place = encrypting(workplace(tmp_path), KeyTexts(public={"k1": pem}, active="k1"))
    done = await run_in_loop(merge_of(world.segments()), place)
    assert {log.uploaded.encryption and log.uploaded.encryption.key_id for log in done.made} == {
        "k1"
    }


@pytest.mark.parametrize(
    ("public", "message"),
    [({}, "'k1' did not reach"), ({"k1": "no key"}, "'k1' is not an RSA key in PEM")],
)
async def test_a_key_that_did_not_come_is_named(
    tmp_path: Path, public: dict[str, str], message: str
) -> None:
    place = encrypting(workplace(tmp_path), KeyTexts(public=public, active="k1"))
    with pytest.raises(KeyFileError, match=message):
        await run_in_loop(merge_of([]), place)


async def test_a_worker_reads_the_marker_of_its_stores_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await written(tmp_path / "blocks")
    cluster_id = uuid4()
    marker = encode_marker(StoreMarker(cluster_id=cluster_id, generation=1))
    for name in ("blocks", "cold"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / MARKER_KEY).write_bytes(marker)
    reads: list[str] = []

    async def watched(store: ObjectStore) -> tuple[StoreMarker, str] | None:
        reads.append(store.url)
        return await read_marker(store)

    monkeypatch.setattr(workers, "read_marker", watched)
    place = with_segments_in(workplace(tmp_path / "blocks"), tmp_path / "cold").of_cluster(
        cluster_id
    )
    efforts = [(await run_in_loop(merge_of(world.segments()), place)).effort for _ in range(3)]
    assert reads == [f"file://{tmp_path / 'blocks'}", f"file://{tmp_path / 'cold'}"]
    assert {effort.requests for effort in efforts} == {3 + 5}, "they are no part of a task's cost"
    await world.store.close()


async def test_a_folder_that_is_not_mounted_any_more_is_not_made_anew(tmp_path: Path) -> None:
    world = await written(tmp_path / "blocks")
    await world.store.close()
    cluster_id = uuid4()
    marker = encode_marker(StoreMarker(cluster_id=cluster_id, generation=1))
    (tmp_path / "blocks" / MARKER_KEY).write_bytes(marker)
    place = workplace(tmp_path / "blocks").of_cluster(cluster_id)
    assert (await run_in_loop(merge_of(world.segments()), place)).failed == []
    (tmp_path / "blocks").rename(tmp_path / "away")
    done = await run_in_loop(merge_of(world.segments()), place)
    assert [(each.retriable, each.lost) for each in done.failed] == [(True, False)] * 5
    assert not (tmp_path / "blocks").exists()


async def test_a_store_that_refuses_a_worker_is_no_partitions_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await written(tmp_path)
    (tmp_path / MARKER_KEY).touch()

    async def refuse(_: ObjectStore) -> None:
        raise StoreAccessError("made to fail")

    monkeypatch.setattr(workers, "read_marker", refuse)
    place = workplace(tmp_path).of_cluster(uuid4())
    done = await run_in_loop(world.split_task(), place)
    assert [each.retriable for each in done.failed] == [True] * 5
    await world.store.close()


def test_run_task_needs_no_loop(tmp_path: Path) -> None:
    done = run_task(merge_of([]), workplace(tmp_path))
    assert (done.made, done.failed, done.effort.requests) == ((), (), 0)


def test_the_text_of_a_workplace_shows_no_secret(tmp_path: Path) -> None:
    place = encrypting(workplace(tmp_path), KeyTexts(public={"k": "pem"}, active="k"))
    stores = replace(place.access.stores, object_options={"secret": "hush"})
    place = replace(place, access=replace(place.access, stores=stores))
    assert "hush" not in repr(place)
    assert "pem" not in repr(place)
