"""The policy of sealing in a model of a broker: objects, dollars and latency of several loads.

Run: python -m bench.sealing [--seconds 60]

The policy is the broker's own (`block/sealing.py`). Store, commits and clients are modelled: puts
and commits take as long as on a folder with SQLite, or on S3 with PostgreSQL; a request takes the
broker's processor; a closed-loop client sends again when it is answered. "Windows alone" is the
same broker with a budget of 0. Everything is drawn from one seed.
"""

import argparse
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import NamedTuple

from bench.figures import percentiles

from stratalog.block.sealing import Sealing, Wait

KB = 1000
MB = 1_000_000
PUT_DOLLARS = 5 / MB
MONTH_S = 30 * 86_400
MAX_BYTES = 8 << 20
WINDOW_S = 0.25
REQUEST_S = 130e-6
"""Of the broker's processor for each request, and, below, for each byte of it."""
BYTE_S = 1 / (1200 * MB)
UPLOADS = 8


class Store(NamedTuple):
    put_s: float
    spread: float
    bytes_per_s: float
    commit_s: float


FOLDER = Store(put_s=0.0013, spread=0.5, bytes_per_s=900 * MB, commit_s=0.0012)
S3 = Store(put_s=0.035, spread=0.35, bytes_per_s=90 * MB, commit_s=0.004)


@dataclass(eq=False, slots=True)
class Request:
    sender: int
    size_bytes: int
    sent_s: float


@dataclass(eq=False, slots=True)
class Block:
    requests: list[Request]
    size_bytes: int
    sealed_s: float
    uploaded: bool = False


class Client:
    """`depth` requests in flight in a closed loop, or, with a pause, one whenever it is due."""

    def __init__(
        self,
        *,
        size_bytes: int,
        depth: int = 1,
        back_s: float = 0.0008,
        next_s: float = 0.0001,
        pause: Callable[[Random], float] | None = None,
        burst: int = 1,
    ) -> None:
        self.size_bytes = size_bytes
        self.depth = depth
        self.back_s = back_s
        self.next_s = next_s
        self.pause = pause
        self.burst = burst


@dataclass(slots=True)
class Outcome:
    seconds: float
    objects: int = 0
    bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)


class Model:
    def __init__(self, store: Store, clients: Sequence[Client], requests_per_s: float) -> None:
        self.store, self.clients = store, clients
        self.random = Random(1)
        self.sealing = Sealing(
            max_bytes=MAX_BYTES, window_s=WINDOW_S, requests_per_s=requests_per_s
        )
        self.now_s = 0.0
        self.sent_s = [0.0 for _ in clients]
        """The last request of each client in a closed loop."""
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.open: list[Request] = []
        self.queue: deque[Block] = deque()
        self.waiting: deque[Block] = deque()
        self.uploading = 0
        self.committing = False
        self.free_s = 0.0
        self.wake_s = math.inf

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time_s, next(self.numbers), call))

    def run(self, seconds: float, warm_s: float) -> Outcome:
        self.outcome = Outcome(seconds)
        self.warm_s = warm_s
        for number, client in enumerate(self.clients):
            if client.pause is None:
                for _ in range(client.depth):
                    self.send(number, self.random.random() * 0.01)
            else:
                self.due(number, first=True)
        while self.events and self.events[0][0] < warm_s + seconds:
            self.now_s, _, call = heapq.heappop(self.events)
            call()
        return self.outcome

    # Clients.

    def due(self, number: int, *, first: bool = False) -> None:
        client = self.clients[number]
        assert client.pause is not None
        if not first:
            for place in range(client.burst):
                self.send(number, place * client.next_s)
        self.at(self.now_s + client.pause(self.random), lambda: self.due(number))

    def send(self, number: int, after_s: float) -> None:
        sent_s = self.now_s + after_s
        request = Request(number, self.clients[number].size_bytes, sent_s)
        self.at(sent_s, lambda: self.receive(request))

    def send_again(self, number: int) -> None:
        """A client makes one request after the other, and the next one when it is answered."""
        client = self.clients[number]
        back_s = self.now_s + client.back_s * self.random.lognormvariate(0, 0.4)
        sent_s = self.sent_s[number] = max(back_s, self.sent_s[number] + client.next_s)
        self.send(number, sent_s - self.now_s)

    def receive(self, request: Request) -> None:
        self.free_s = max(self.free_s, self.now_s) + REQUEST_S + request.size_bytes * BYTE_S
        self.at(self.free_s, lambda: self.enter(request))

    # The broker.

    def enter(self, request: Request) -> None:
        self.open.append(request)
        self.sealing.arrived(request.sender, request.size_bytes, self.now_s)
        self.look()

    def look(self) -> None:
        if not self.open:
            return
        verdict = self.sealing.decide(self.now_s)
        if not isinstance(verdict, Wait):
            self.seal()
        elif verdict.until_s < self.wake_s:
            # The system's timers are a millisecond coarse.
            self.wake_s = math.ceil(verdict.until_s * 1000 + 1e-6) / 1000
            self.at(self.wake_s, self.wake)

    def wake(self) -> None:
        self.wake_s = math.inf
        self.look()

    def seal(self) -> None:
        block = Block(self.open, sum(each.size_bytes for each in self.open), self.now_s)
        self.open = []
        self.sealing.sealed(self.now_s)
        if self.now_s > self.warm_s:
            self.outcome.objects += 1
        self.queue.append(block)
        self.waiting.append(block)
        self.upload()

    def upload(self) -> None:
        while self.waiting and self.uploading < UPLOADS:
            block = self.waiting.popleft()
            self.uploading += 1
            taken = self.store.put_s * self.random.lognormvariate(0, self.store.spread)
            self.at(
                self.now_s + taken + block.size_bytes / self.store.bytes_per_s,
                lambda block=block: self.uploaded(block),  # type: ignore[misc]
            )

    def uploaded(self, block: Block) -> None:
        block.uploaded = True
        self.uploading -= 1
        self.upload()
        self.commit()

    def commit(self) -> None:
        group = []
        while not self.committing and self.queue and self.queue[0].uploaded:
            group.append(self.queue.popleft())
        if group:
            self.committing = True
            taken = self.store.commit_s * self.random.lognormvariate(0, self.store.spread)
            self.at(self.now_s + taken, lambda: self.committed(group))

    def committed(self, group: Sequence[Block]) -> None:
        self.committing = False
        for block in group:
            self.answer(block)
        self.look()
        self.commit()

    def answer(self, block: Block) -> None:
        numbers = [each.sender for each in block.requests]
        self.sealing.written(numbers, block.sealed_s, self.now_s)
        for request in block.requests:
            client = self.clients[request.sender]
            if request.sent_s > self.warm_s:
                self.outcome.latencies_s.append(self.now_s - request.sent_s)
                self.outcome.bytes += request.size_bytes
            if client.pause is None:
                self.send_again(request.sender)


LOADS: dict[str, Sequence[Client]] = {
    "one sender, one record at a time": [Client(size_bytes=KB)],
    "Java's default: 5 x 16 KB": [Client(size_bytes=16 * KB, depth=5)],
    "5 x 1 MB": [Client(size_bytes=MB, depth=5, next_s=0.002)],
    "20 thin closed loops": [Client(size_bytes=200) for _ in range(20)],
    "1,000 thin, one a second each": [
        Client(size_bytes=KB, pause=lambda random: random.expovariate(1)) for _ in range(1000)
    ],
    "one sender, 100 a second": [Client(size_bytes=KB, pause=lambda _: 0.01)],
    "100 senders, one a second each": [
        Client(size_bytes=KB, pause=lambda random: random.expovariate(1)) for _ in range(100)
    ],
    "bursts of 50, twice a second": [Client(size_bytes=KB, pause=lambda _: 0.5, burst=50)],
    "Java's default beside the 1,000": [
        Client(size_bytes=16 * KB, depth=5),
        *(Client(size_bytes=KB, pause=lambda random: random.expovariate(1)) for _ in range(1000)),
    ],
    "full speed, 64 x 1 MB": [Client(size_bytes=MB, depth=64, next_s=0.0018)],
}


def show(name: str, outcome: Outcome, put_dollars: float) -> None:
    p50, p99 = percentiles(outcome.latencies_s)
    per_gb = outcome.objects / outcome.bytes * 1e9
    per_million = outcome.objects / len(outcome.latencies_s) * MB
    per_month = outcome.objects / outcome.seconds * MONTH_S
    dollars = [value * put_dollars for value in (per_gb, per_million, per_month) if put_dollars]
    figures = [
        f"{outcome.bytes / MB / outcome.seconds:,.2f}",
        f"{outcome.objects / outcome.seconds:,.1f}",
        f"{per_gb:,.0f}",
        f"{per_million:,.0f}",
        *(f"{value:,.4g}" for value in dollars),
        f"{p50 * 1000:,.1f}",
        f"{p99 * 1000:,.1f}",
    ]
    print(f"| {name} | {' | '.join(figures)} |")


def show_head(title: str, put_dollars: float) -> None:
    dollars = ["$ per GB", "$ per million", "$ a month"] if put_dollars else []
    counts = ["MB/s", "objects/s", "objects per GB", "per million requests"]
    columns = ["load", *counts, *dollars, "p50 ms", "p99 ms"]
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


SETTINGS = (
    ("A folder, windows alone", FOLDER, 0.0),
    ("A folder, early blocks without a budget", FOLDER, math.inf),
    ("S3, windows alone", S3, 0.0),
    ("S3, a budget of 4 requests a second", S3, 4.0),
    ("S3, a budget of 20 requests a second", S3, 20.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    for title, store, requests_per_s in SETTINGS:
        put_dollars = PUT_DOLLARS if store is S3 else 0.0
        show_head(title, put_dollars)
        for name, clients in LOADS.items():
            # The largest loads show the same within less time.
            spell_s = min(seconds, 10.0) if clients[0].size_bytes >= MB else seconds
            outcome = Model(store, clients, requests_per_s).run(spell_s, warm_s=15.0)
            show(name, outcome, put_dollars)


if __name__ == "__main__":
    main()
