"""A broker's storage, opened beside it or without it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.settings import Settings

T = TypeVar("T")


def run_in(settings: Settings, work: Callable[[ControlPlane, ObjectStore], Awaitable[T]]) -> T:
    async def opened() -> T:
        storage = settings.storage
        control = await open_control_plane(storage.control)
        store = open_store(storage.objects, storage.object_options, clock=SystemClock())
        try:
            return await work(control, store)
        finally:
            await store.close()
            await control.close()

    return asyncio.run(opened())
