"""The settings of one worker: its share of the memory and of the connections of its broker."""

from dataclasses import replace

from stratalog.settings import MIB, Settings


def share_of(settings: Settings) -> Settings:
    """Return the settings of each worker, so that all of them together keep to the bounds of the
    broker."""
    workers = settings.broker.workers
    broker, block, remote = settings.broker, settings.block, settings.remote
    return replace(
        settings,
        broker=replace(
            broker,
            request_memory_bytes=max(MIB, broker.request_memory_bytes // workers),
            answer_memory_bytes=max(MIB, broker.answer_memory_bytes // workers),
            max_connections=_shared(broker.max_connections, workers),
            max_connections_per_address=_shared(broker.max_connections_per_address, workers),
        ),
        block=replace(
            block,
            max_inflight_bytes=_shared(block.max_inflight_bytes, workers),
            cache_bytes=block.cache_bytes // workers,
            requests_per_second=_budget(block.requests_per_second, workers),
        ),
        fetch=replace(settings.fetch, sessions=_shared(settings.fetch.sessions, workers)),
        remote=replace(
            remote,
            index_cache_bytes=remote.index_cache_bytes // workers,
            chunk_cache_bytes=remote.chunk_cache_bytes // workers,
        ),
    )


def _shared(total: int, workers: int) -> int:
    """A share of a number that must not be 0."""
    return -(-total // workers)


def _budget(requests_per_second: int | None, workers: int) -> int | None:
    """A share of a budget, which must not become 0: that would switch it off."""
    if not requests_per_second:
        return requests_per_second
    return max(1, requests_per_second // workers)
