from stratalog.clock import SystemClock
from stratalog.objects import ObjectStore, open_store
from stratalog.segment.stores import SegmentStores


def memory_store() -> ObjectStore:
    return open_store("memory:", clock=SystemClock())


async def test_every_store_is_opened_once_and_our_own_not_at_all() -> None:
    opened: list[str] = []

    def open_other(url: str) -> ObjectStore:
        opened.append(url)
        return memory_store()

    own = memory_store()
    stores = SegmentStores(own, open_other)
    assert stores.of("") is own
    assert stores.own is own
    assert stores.of("s3://a") is stores.of("s3://a")
    assert stores.of("s3://a") is not stores.of("s3://b")
    assert opened == ["s3://a", "s3://b"]
    await stores.close()
    await stores.close()
    await own.put("still/open", [b"x"])
    await own.close()
