"""Real clients that write and read one topic all the time, and the history they leave.

There are producers of every kind that Kafka has (plain, ordered, idempotent), consumers with
assigned partitions and, if asked for, members of a group. They use librdkafka, and aiokafka where
it is installed.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from stratalog.clock import SYSTEM_CLOCK
from stratalog.ids import new_uuid
from stratalog.testing.checker.client_load import Load
from stratalog.testing.checker.confluent_clients import (
    ConfluentConsumer,
    ConfluentMember,
    ConfluentProducer,
    client_config,
    drain,
    note_committed,
)
from stratalog.testing.checker.history import Note, Promise
from stratalog.testing.checker.recorder import Recorder

GROUP = "checker-group"
_GROUP_MEMBERS = 2
_STEP_SECONDS = 0.05
_STOP_SECONDS = 30.0
_CREATE_SECONDS = 30.0


class _Client(Protocol):
    name: str

    def stop(self) -> None: ...


class _Task(_Client, Protocol):
    async def run(self) -> None: ...


class _Thread(_Client, Protocol):
    def start(self) -> None: ...

    def is_alive(self) -> bool: ...


def new_topic_name() -> str:
    return f"checker-{new_uuid().hex[:8]}"


async def create_topic(load: Load) -> None:
    admin = AdminClient(client_config(load))
    created = admin.create_topics([NewTopic(load.topic, load.partitions)])
    await asyncio.to_thread(created[load.topic].result, _CREATE_SECONDS)


class Workload:
    """Make it, `start`, and later `finish`: the recorder then has the whole history."""

    def __init__(self, load: Load, *, groups: bool, recorder: Recorder | None = None) -> None:
        self.recorder = recorder or Recorder()
        self._load = load
        self._groups = groups
        self._clock = SYSTEM_CLOCK
        self._producers: list[_Thread] = [
            ConfluentProducer(load, self.recorder, f"librdkafka-{promise}", promise)
            for promise in (Promise.PLAIN, Promise.IDEMPOTENT)
        ]
        self._consumers: list[_Thread] = [
            ConfluentConsumer(load, self.recorder, f"librdkafka-reader-{reset}", reset=reset)
            for reset in ("error", "earliest")
        ]
        self._members: list[_Thread] = [
            ConfluentMember(load, self.recorder, f"librdkafka-member-{number}", GROUP)
            for number in range(_GROUP_MEMBERS if groups else 0)
        ]
        self._producer_tasks, self._consumer_tasks = _aiokafka(load, self.recorder)
        self._running: dict[_Task, asyncio.Task[None]] = {}
        self.stuck: list[str] = []
        """Clients that did not end when the run stopped them."""

    def start(self) -> None:
        for thread in (*self._consumers, *self._members, *self._producers):
            thread.start()
        for task in (*self._consumer_tasks, *self._producer_tasks):
            self._running[task] = asyncio.create_task(task.run(), name=task.name)

    async def finish(self, *, seconds: float) -> bool:
        """End the producers, read everything, end the consumers. False if not all could be read.

        It may take any time while it makes progress, and gives up after `seconds` without any.
        """
        patience_s = 2 * self._load.patience_s + _STOP_SECONDS
        await self._stop(self._producers, self._producer_tasks, patience_s)
        drained = await asyncio.to_thread(drain, self._load, self.recorder, "drain", seconds)
        if drained:
            drained = await self._until_none(lambda: self.recorder.unseen, seconds)
        if self._groups:
            drained &= await self._until_none(lambda: self.recorder.group_lag, seconds)
        readers = [*self._consumers, *self._members]
        await self._stop(readers, self._consumer_tasks, _STOP_SECONDS)
        if self._groups:
            await asyncio.to_thread(note_committed, self._load, self.recorder, GROUP, seconds)
        return drained

    async def _stop(
        self, threads: Sequence[_Thread], tasks: Sequence[_Task], seconds: float
    ) -> None:
        for client in (*threads, *tasks):
            client.stop()
        running = [self._running[task] for task in tasks]
        if not await self.until(lambda: not _alive(threads, running), seconds):
            self._note_stuck(_alive(threads, running))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _note_stuck(self, names: Sequence[str]) -> None:
        """Note stuck clients. Their answers so far can be judged, so the run goes on."""
        frames = sys._current_frames()
        where = {
            thread.name: traceback.extract_stack(frames[thread.ident])[-1].line
            for thread in threading.enumerate()
            if thread.ident in frames
        }
        for name in names:
            self.stuck.append(name)
            self.recorder.add(Note(what=f"{name} does not end: {where.get(name)}"))

    async def _until_none(self, left: Callable[[], int], seconds: float) -> bool:
        """Wait until nothing is left. False if the rest stopped shrinking."""
        least = left()
        while least and await self._less(left, least, seconds):
            least = left()
        return not least

    async def _less(self, left: Callable[[], int], than: int, seconds: float) -> bool:
        return await self.until(lambda: left() < than, seconds)

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition. False if it did not come true in time."""
        deadline = self._clock.monotonic() + seconds
        while not done():
            if self._clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(_STEP_SECONDS)
        return True


def _alive(threads: Sequence[_Thread], tasks: Sequence["asyncio.Task[None]"]) -> list[str]:
    names = [thread.name for thread in threads if thread.is_alive()]
    return names + [task.get_name() for task in tasks if not task.done()]


def _aiokafka(load: Load, recorder: Recorder) -> tuple[list[_Task], list[_Task]]:
    if find_spec("aiokafka") is None:
        return [], []
    # Imported late: the package need not be installed.
    from stratalog.testing.checker.aiokafka_clients import AiokafkaConsumer, AiokafkaProducer

    producers: list[_Task] = [
        AiokafkaProducer(load, recorder, f"aiokafka-{promise}", promise)
        for promise in (Promise.ORDERED, Promise.IDEMPOTENT)
    ]
    consumers: list[_Task] = [
        AiokafkaConsumer(load, recorder, "aiokafka-reader", reset="none"),
    ]
    return producers, consumers
