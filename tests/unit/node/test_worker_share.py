"""The workers of a broker together keep to the bounds that are set for it."""

from dataclasses import fields, is_dataclass

import pytest

from stratalog.node.workers.share import share_of
from stratalog.settings import MIB, BlockSettings, BrokerSettings, Settings

DIVIDED = {
    ("broker", "request_memory_bytes"),
    ("broker", "answer_memory_bytes"),
    ("broker", "max_connections"),
    ("broker", "max_connections_per_address"),
    ("block", "max_inflight_bytes"),
    ("block", "cache_bytes"),
    ("block", "requests_per_second"),
    ("fetch", "sessions"),
    ("remote", "index_cache_bytes"),
    ("remote", "chunk_cache_bytes"),
}


def values(settings: Settings) -> dict[tuple[str, str], object]:
    return {
        (section.name, field.name): getattr(getattr(settings, section.name), field.name)
        for section in fields(settings)
        if is_dataclass(getattr(settings, section.name))
        for field in fields(getattr(settings, section.name))
    }


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_shares_add_up_to_the_whole_and_nothing_else_differs(workers: int) -> None:
    settings = Settings(
        broker=BrokerSettings(workers=workers), block=BlockSettings(requests_per_second=100)
    )
    whole, share = values(settings), values(share_of(settings))
    for name in DIVIDED:
        total, part = whole[name], share[name]
        assert isinstance(total, int)
        assert isinstance(part, int)
        assert total - workers < part * workers < total + workers
    assert {name for name in whole if whole[name] != share[name]} == (
        DIVIDED if workers > 1 else set()
    )


def test_no_share_is_too_small_to_work_with() -> None:
    settings = Settings(
        broker=BrokerSettings(
            workers=8, request_memory_bytes=MIB, answer_memory_bytes=MIB, max_connections=3
        ),
        block=BlockSettings(cache_bytes=0, max_inflight_bytes=5),
    )
    share = share_of(settings)
    assert share.broker.request_memory_bytes == share.broker.answer_memory_bytes == MIB
    assert share.broker.max_connections == 1
    assert share.block.max_inflight_bytes == 1
    assert share.block.cache_bytes == 0


@pytest.mark.parametrize(("budget", "share"), [(None, None), (0, 0), (3, 1), (80, 10)])
def test_a_budget_of_requests_is_divided_and_never_switched_off(
    budget: int | None, share: int | None
) -> None:
    settings = Settings(
        broker=BrokerSettings(workers=8), block=BlockSettings(requests_per_second=budget)
    )
    assert share_of(settings).block.requests_per_second == share
