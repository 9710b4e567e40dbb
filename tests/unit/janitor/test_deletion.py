import pytest
from tests.unit.janitor.fakes import FakeControl, FakeStore, object_row

from stratalog.control.errors import ControlUnavailableError
from stratalog.janitor.deletion import delete_marked, purge_topics
from stratalog.janitor.errors import DeletionRefusedError
from stratalog.objects.errors import StoreAccessError, StoreUnavailableError


def marked(count: int) -> tuple[FakeControl, FakeStore]:
    rows = [object_row(number) for number in range(count)]
    return FakeControl(marked=rows), FakeStore({row.key for row in rows})


async def delete(control: FakeControl, store: FakeStore, chunk_rows: int = 3) -> int:
    return await delete_marked(control, store.store, grace_ms=0, chunk_rows=chunk_rows)


async def test_marked_objects_are_deleted_and_forgotten_in_chunks() -> None:
    control, store = marked(7)
    assert await delete(control, store) == 7
    assert not store.keys
    assert not control.marked
    assert store.requests == 3


async def test_an_object_is_remembered_until_it_is_deleted() -> None:
    control, store = marked(2)
    store.failure = StoreUnavailableError("slow down")
    with pytest.raises(StoreUnavailableError):
        await delete(control, store)
    assert len(control.marked) == 2
    assert store.requests == 1
    store.failure = None
    assert await delete(control, store) == 2


async def test_a_crash_before_the_row_is_forgotten_is_made_good_by_the_next_run() -> None:
    control, store = marked(2)
    control.failing["objects.forget"] = ControlUnavailableError("down")
    with pytest.raises(ControlUnavailableError):
        await delete(control, store)
    assert not store.keys
    assert len(control.marked) == 2
    del control.failing["objects.forget"]
    assert await delete(control, store) == 2
    assert not control.marked


async def test_an_object_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    control, store = marked(3)
    store.held = {"k1"}
    with pytest.raises(DeletionRefusedError, match=r"1 objects could not be deleted.*k1: held"):
        await delete(control, store)
    assert store.keys == {"k1"}
    assert [row.key for row in control.marked] == ["k1"]


@pytest.mark.parametrize("chunk_rows", [3, 50, 1000])
@pytest.mark.parametrize(
    "held", [range(3), range(7), range(150), range(290, 300), range(0, 300, 2), range(10, 290)]
)
async def test_nothing_starves_behind_objects_that_cannot_be_deleted(
    chunk_rows: int, held: range
) -> None:
    control, store = marked(300)
    store.held = {f"k{number}" for number in held}
    with pytest.raises(DeletionRefusedError, match=f"{len(held)} objects could not .*: held"):
        await delete(control, store, chunk_rows)
    assert store.keys == store.held
    assert len(control.marked) == len(held)


async def test_a_lost_permission_is_not_tried_on_every_object() -> None:
    control, store = marked(2000)
    store.failure = StoreAccessError("no")
    with pytest.raises(DeletionRefusedError, match="2000 objects"):
        await delete(control, store, chunk_rows=1000)
    assert store.requests < 160
    assert len(control.marked) == 2000


async def test_deleted_topics_are_purged_until_nothing_is_left() -> None:
    control = FakeControl(purgeable=7)
    assert await purge_topics(control, window_ms=0, chunk_rows=3) == 7
    assert control.calls == ["topics.purge_deleted"] * 4
