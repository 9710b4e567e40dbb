"""The workers of a broker beside its first one, from the side of the first.

Each is a process. One that dies loses no record that was acknowledged: its clients connect again,
to any worker, and it is started again. Only the first worker holds the broker's lease, coordinates
groups, and runs the janitor and the pipeline.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterable

from stratalog.clock import Clock
from stratalog.cluster.hints import Advanced
from stratalog.errors import StratalogError
from stratalog.node.errors import WorkerFailedError
from stratalog.node.fence import Fence
from stratalog.node.workers.link import Kind, Link, Orders, advanced_of, pack_orders
from stratalog.retry import Backoff

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", "stratalog.node.workers.process")
_BACKOFF = Backoff(first_s=0.5, longest_s=10.0)
_GRACE_S = 5.0
"""Beyond the time that a stopping broker waits for its clients and for its last blocks."""


class Workers:
    def __init__(
        self,
        numbers: Iterable[int],
        *,
        orders: Callable[[int], Orders],
        listening: socket.socket,
        on_committed: Callable[[Advanced], None],
        fence: Fence,
        clock: Clock,
        stop_s: float,
    ) -> None:
        self._workers = [
            _Worker(number, orders=orders, listening=listening, team=self, clock=clock)
            for number in numbers
        ]
        self._on_committed = on_committed
        self._fence = fence
        self._stop_s = stop_s + _GRACE_S

    async def start(self) -> None:
        """Start all workers. On return they serve clients."""
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let the workers answer their clients and commit their records, then end them."""
        await asyncio.gather(*(worker.stop(self._stop_s) for worker in self._workers))

    def committed(self, advanced: Advanced) -> None:
        """Tell all workers about a commit of this one."""
        self._tell(Kind.COMMITTED, advanced)

    def hinted(self, advanced: Advanced) -> None:
        """Tell all workers about another broker's hint."""
        self._tell(Kind.HINTED, advanced)

    def heard(self, sender: "_Worker", kind: Kind, body: bytes) -> None:
        if kind is Kind.COMMITTED:
            advanced = advanced_of(body)
            self._tell(Kind.COMMITTED, advanced, besides=sender)
            self._on_committed(advanced)
        elif kind is Kind.FENCED:
            self._fence.close(WorkerFailedError(body.decode()))

    def _tell(self, kind: Kind, advanced: Advanced, besides: "_Worker | None" = None) -> None:
        for worker in self._workers:
            if worker is not besides:
                worker.tell(kind, advanced)

    @property
    def pids(self) -> list[int]:
        return [pid for worker in self._workers if (pid := worker.pid) is not None]


class _Worker:
    def __init__(
        self,
        number: int,
        *,
        orders: Callable[[int], Orders],
        listening: socket.socket,
        team: Workers,
        clock: Clock,
    ) -> None:
        self.number = number
        self._orders = orders
        self._listening = listening
        self._team = team
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._link: Link | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def tell(self, kind: Kind, advanced: Advanced) -> None:
        if self._link is not None:
            self._link.tell(kind, advanced)

    async def start(self) -> None:
        await self._start_once()
        self._watching = asyncio.create_task(self._watch(), name=f"worker {self.number}")

    async def stop(self, timeout_s: float) -> None:
        self._stopping = True
        process = self._process
        if self._link is not None:
            self._link.end()
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), timeout_s)
            except TimeoutError:
                log.warning("Worker %d does not stop, and is killed.", self.number)
                process.kill()
                await process.wait()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._link is not None:
            self._link.close()

    async def _start_once(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                str(theirs.fileno()),
                str(self._listening.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._listening.fileno()),
                # Ctrl-C is for the first worker, which lets the others finish.
                start_new_session=True,
            )
        link = await Link.over(ours)
        self._process, self._link = process, link
        link.send(Kind.ORDERS, pack_orders(self._orders(self.number)))
        message = await link.receive()
        if message is None or message[0] is not Kind.SERVES:
            self._link = None
            link.close()
            code = await process.wait()
            raise WorkerFailedError(
                f"worker {self.number} did not start: it ended with exit code {code},"
                " and its lines in the log say why"
            )
        log.info("Worker %d serves clients, as process %d.", self.number, process.pid)

    async def _watch(self) -> None:
        """Listen to the worker, and start it again when it dies."""
        failures = 0
        while True:
            if self._link is not None:
                began_s = self._clock.monotonic()
                await self._listen(self._link)
                if self._clock.monotonic() - began_s > _BACKOFF.longest_s:
                    failures = 0
            if self._stopping:
                return
            failures += 1
            await self._clock.sleep(_BACKOFF.pause_s(failures))
            await self._start_again()

    async def _listen(self, link: Link) -> None:
        assert self._process is not None
        while (message := await link.receive()) is not None:
            self._team.heard(self, *message)
        self._link = None
        link.close()
        code = await self._process.wait()
        if not self._stopping:
            log.error("Worker %d ended with exit code %d, and is started again.", self.number, code)

    async def _start_again(self) -> None:
        try:
            await self._start_once()
        except (OSError, StratalogError) as error:
            if not self._stopping:
                log.error("Worker %d was not started, trying again: %s", self.number, error)
