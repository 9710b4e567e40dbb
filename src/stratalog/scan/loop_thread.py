"""One event loop per process, on its own thread, for callers without a loop or with a busy one."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="stratalog-scan", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the work. A caller that is interrupted while it waits cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)

    @property
    def is_here(self) -> bool:
        """True on the loop's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


_lock = threading.Lock()
_shared: LoopThread | None = None


def shared_loop_thread() -> LoopThread:
    """Return the thread of this process. The first call starts it."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared


def _after_fork() -> None:
    """Forget the thread: threads do not survive a fork, and Spark's workers are forked."""
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
