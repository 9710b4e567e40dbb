"""A real broker inside the test's process: real sockets, a real control plane, objects in memory.

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
"""

import asyncio
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import uvloop

from stratalog.node.broker import Broker as KafkaBroker
from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
)

_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 60

FAST = Settings(
    broker=BrokerSettings(listen="127.0.0.1:0"),
    block=BlockSettings(window_ms=5),
    janitor=JanitorSettings(interval_ms=0, backup_window_ms=0),
)
"""Settings for tests: any free port, a short window, and nothing in the background. Deletion
waits for no window of backups, because objects in memory have none."""


class Broker:
    """Start with `with`. It keeps nothing: when the block ends, its topics are gone.

    `settings` replaces the defaults that suit tests. Where their storage is the default one, the
    broker gets memory for objects and a temporary folder for its control plane.
    """

    def __init__(self, settings: Settings = FAST) -> None:
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._address = ("", 0)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for a Kafka client."""
        host, port = self._address
        return f"{host}:{port}"

    def __enter__(self) -> "Broker":
        settings = self._settings
        if settings.storage == StorageSettings():
            self._folder = tempfile.TemporaryDirectory(prefix="stratalog-")
            settings = replace(settings, storage=_temporary(Path(self._folder.name)))
        self._thread = threading.Thread(
            target=self._run, args=(settings,), name="stratalog-broker", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._clean_up()
            raise self._failure
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._clean_up()
        if self._failure is not None and exc is None:
            raise self._failure

    def _clean_up(self) -> None:
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        if self._folder is not None:
            self._folder.cleanup()

    def _run(self, settings: Settings) -> None:
        try:
            uvloop.run(self._serve(settings))
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self, settings: Settings) -> None:
        broker = await _started(settings)
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._address = broker.address
        self._ready.set()
        await self._stop.wait()
        await broker.stop()


async def _started(settings: Settings) -> KafkaBroker:
    """Start a broker. It waits for a database or a store that is away, but not for ever."""
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            return await KafkaBroker.start(settings)
    except TimeoutError as error:
        raise TimeoutError(
            f"the broker did not start within {_START_TIMEOUT_S} s: its log says why"
        ) from error


def _temporary(folder: Path) -> StorageSettings:
    return StorageSettings(objects="memory:", control=f"sqlite:{folder / 'control.db'}")
