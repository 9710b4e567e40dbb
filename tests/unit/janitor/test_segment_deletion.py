import pytest
from tests.unit.janitor.fakes import FakeControl, FakeStore, segment

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import ChainOutcome, SegmentState
from stratalog.ids import SegmentId
from stratalog.janitor.errors import DeletionRefusedError
from stratalog.janitor.segment_deletion import clear_unfinished, delete_doomed
from stratalog.objects.errors import StoreAccessError, StoreUnavailableError
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores

SUFFIXES = (".log", ".indexes", ".rsm-manifest")


def keys(*numbers: int) -> set[str]:
    return {f"s{number}{suffix}" for number in numbers for suffix in SUFFIXES}


def doomed(count: int) -> tuple[FakeControl, FakeStore]:
    control = FakeControl(doomed=[segment(number) for number in range(count)])
    return control, FakeStore(keys(*range(count)))


async def delete(
    control: FakeControl, own: FakeStore, other: FakeStore | None = None, *, chunk_rows: int = 3
) -> int:
    def open_other(url: str) -> ObjectStore:
        if other is None:
            raise StoreAccessError(f"no {url}")
        return other.store

    stores = SegmentStores(own.store, open_other)
    return await delete_doomed(control.segments, stores, grace_ms=0, chunk_rows=chunk_rows)


# Deletion.


async def test_doomed_segments_are_deleted_and_forgotten_in_chunks() -> None:
    control, store = doomed(7)
    assert await delete(control, store) == 7
    assert not store.keys
    assert not control.doomed
    assert store.requests == 3 * 2


async def test_manifests_go_before_all_other_objects() -> None:
    control, store = doomed(2)
    await delete(control, store)
    assert store.asked == [
        ["s0.rsm-manifest", "s1.rsm-manifest"],
        ["s0.indexes", "s0.log", "s1.indexes", "s1.log"],
    ]


async def test_a_segment_is_remembered_until_its_objects_are_deleted() -> None:
    control, store = doomed(2)
    store.failure = StoreUnavailableError("slow down")
    with pytest.raises(DeletionRefusedError, match="slow down"):
        await delete(control, store)
    assert len(control.doomed) == 2
    assert store.requests == 1
    store.failure = None
    assert await delete(control, store) == 2


async def test_a_crash_before_the_row_is_forgotten_is_made_good_by_the_next_run() -> None:
    control, store = doomed(2)
    control.failing["segments.forget"] = ControlUnavailableError("down")
    with pytest.raises(ControlUnavailableError):
        await delete(control, store)
    assert not store.keys
    del control.failing["segments.forget"]
    assert await delete(control, store) == 2
    assert not control.doomed


@pytest.mark.parametrize("held", [f"s1{suffix}" for suffix in SUFFIXES])
async def test_an_object_that_cannot_be_deleted_keeps_no_other_segment(held: str) -> None:
    control, store = doomed(3)
    store.held = {held}
    with pytest.raises(DeletionRefusedError, match=r"1 segments could not be deleted.*s1: held"):
        await delete(control, store)
    assert [row.key_base for row in control.doomed] == ["s1"]
    assert held in store.keys
    assert store.keys <= keys(1)


async def test_nothing_starves_behind_segments_that_cannot_be_deleted() -> None:
    control, store = doomed(20)
    store.held = {f"s{number}.log" for number in range(7)}
    with pytest.raises(DeletionRefusedError, match="7 segments could not be deleted"):
        await delete(control, store)
    assert [row.key_base for row in control.doomed] == [f"s{number}" for number in range(7)]
    assert store.keys == store.held | {f"s{number}.indexes" for number in range(7)} & store.keys


async def test_a_store_that_cannot_be_asked_is_asked_once_in_a_run() -> None:
    control = FakeControl(doomed=[segment(n, store_url="other:" * (n % 2)) for n in range(20)])
    own, other = FakeStore(keys(*range(20))), FakeStore()
    other.failure = StoreUnavailableError("slow down")
    with pytest.raises(DeletionRefusedError, match=r"10 segments .* s1: slow down"):
        await delete(control, own, other)
    assert other.requests == 1
    assert own.keys == keys(*range(1, 20, 2))


async def test_a_lost_permission_is_not_tried_on_every_segment() -> None:
    control, store = doomed(2000)
    store.failure = StoreAccessError("no")
    with pytest.raises(DeletionRefusedError, match="2000 segments"):
        await delete(control, store, chunk_rows=1000)
    assert store.requests < 160
    assert len(control.doomed) == 2000


async def test_objects_of_somebody_else_are_never_deleted() -> None:
    control = FakeControl(doomed=[segment(0), segment(1, owned=False)])
    store = FakeStore(keys(0, 1))
    assert await delete(control, store) == 2
    assert store.keys == keys(1)
    assert not control.doomed


async def test_each_segment_is_deleted_where_it_lies() -> None:
    control = FakeControl(doomed=[segment(0), segment(1, store_url="other:")])
    own, other = FakeStore(keys(0, 1)), FakeStore(keys(0, 1))
    assert await delete(control, own, other) == 2
    assert (own.keys, other.keys) == (keys(1), keys(0))


async def test_a_store_that_does_not_open_holds_up_its_own_segments_only() -> None:
    control = FakeControl(doomed=[segment(0, store_url="other:"), segment(1)])
    own = FakeStore(keys(1))
    with pytest.raises(DeletionRefusedError, match=r"1 segments .* no other:"):
        await delete(control, own)
    assert not own.keys
    assert [row.key_base for row in control.doomed] == ["s0"]


# Unfinished ones.

FINISHED, STARTED = SegmentState.COPY_FINISHED, SegmentState.COPY_STARTED


async def clear(control: FakeControl) -> int:
    return await clear_unfinished(control, older_than_ms=0, chunk_rows=2)


async def test_what_is_finished_is_chained_and_what_is_not_is_deleted() -> None:
    control = FakeControl(
        unchained=[
            segment(2, state=FINISHED),
            segment(1, state=FINISHED),
            segment(3, state=STARTED),
        ]
    )
    assert await clear(control) == 1
    calls = [call for call in control.calls if call != "segments.unchained"]
    # In the order of their offsets.
    assert calls == ["chain 1", "chain 2", "delete 3"]


async def test_a_finished_segment_without_a_place_is_deleted() -> None:
    control = FakeControl(unchained=[segment(1, state=FINISHED)])
    control.failing["chain 1"] = BoundaryMovedError("no place")
    assert await clear(control) == 1
    assert control.calls[1:3] == ["chain 1", "delete 1"]


async def test_a_segment_that_others_delete_meanwhile_is_theirs() -> None:
    class Raced(FakeControl):
        async def segments_chain(self, segment_id: SegmentId) -> ChainOutcome:
            self.unchained = []
            raise SegmentStateError("its deletion has begun")

    control = Raced(unchained=[segment(1, state=FINISHED)])
    assert await clear(control) == 0
    assert "delete 1" not in control.calls


async def test_a_segment_that_was_overtaken_counts_as_removed() -> None:
    class Overtaken(FakeControl):
        async def segments_chain(self, segment_id: SegmentId) -> ChainOutcome:
            self.unchained = []
            return ChainOutcome.OVERTAKEN

    control = Overtaken(unchained=[segment(1, state=FINISHED)])
    assert await clear(control) == 1
    assert "delete 1" not in control.calls
