"""A TCP proxy that misbehaves: between a client and a broker, or a broker and its servers.

It knows nothing of protocols. Connections are cut after a random number of bytes in either
direction: in the middle of a request, or after a request and before its response.
"""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

_CHUNK_BYTES = 16 * 1024
_ACCEPT_SECONDS = 0.1


class Proxy:
    """Use `running_proxy`. Point it at its target with `target` before anybody connects."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(_ACCEPT_SECONDS)
        self.target = ("127.0.0.1", 0)
        self.cut_requests = 0
        """Connections that were cut, on purpose, on the way to the target."""
        self.cut_responses = 0
        """Connections that were cut on the way back."""
        self.turned_away = 0
        """Connections that were refused while the target seemed to be away."""
        self.cut_at_word = 0
        """Connections that were cut because of the bytes that they carried."""
        self._word = b""
        self._after = b""
        self._word_cuts_left = 0
        self._cuts_left = 0
        self._there_bytes = self._back_bytes = (0, 0)
        self._random = random.Random(0)
        self._away = False
        self._closing = False
        self._lock = threading.Lock()
        self._numbers = count()
        self._links: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut_randomly(
        self,
        *,
        times: int,
        there_bytes: tuple[int, int],
        back_bytes: tuple[int, int],
        seed: int = 0,
    ) -> None:
        """Cut connections made from now on when so many bytes have passed there or back."""
        with self._lock:
            self._cuts_left = times
            self._there_bytes, self._back_bytes = there_bytes, back_bytes
            self._random = random.Random(seed)

    def cut_at(self, word: bytes, *, times: int, after: bytes = b"") -> None:
        """Cut connections that carry a word to the target, after another one if it is given.

        Connections are cut in turns before the word arrives, and after the target has taken it
        and before its reply.
        """
        with self._lock:
            self._word, self._after, self._word_cuts_left = word, after, times

    def behave(self) -> None:
        with self._lock:
            self._cuts_left = self._word_cuts_left = 0

    def go_away(self) -> None:
        """Cut all connections, and every new one at once, until `come_back`."""
        self._away = True
        self.cut_all()

    def come_back(self) -> None:
        self._away = False

    def cut_all(self) -> None:
        with self._lock:
            links = list(self._links.values())
        for link in links:
            _cut(*link)

    def run(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self._connect(client)

    def close(self) -> None:
        self._closing = True
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def _connect(self, client: socket.socket) -> None:
        if self._away:
            self.turned_away += 1
            _cut(client)
            return
        try:
            server = socket.create_connection(self.target)
        except OSError:
            _cut(client)
            return
        with self._lock:
            number = next(self._numbers)
            self._links[number] = (client, server)
        there, back = self._draw_budgets()
        ends = ((client, server, there, True), (server, client, back, False))
        pumps = [
            threading.Thread(target=self._pump, args=(number, *end), daemon=True) for end in ends
        ]
        self._threads += pumps
        for pump in pumps:
            pump.start()

    def _draw_budgets(self) -> tuple[int | None, int | None]:
        """How many bytes may pass to the target and back; None is no bound."""
        with self._lock:
            if self._cuts_left <= 0:
                return None, None
            return self._random.randint(*self._there_bytes), self._random.randint(*self._back_bytes)

    def _pump(
        self,
        number: int,
        source: socket.socket,
        sink: socket.socket,
        budget: int | None,
        is_request: bool,
    ) -> None:
        passed_after = False
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                passed_after = passed_after or self._after in chunk
                if is_request and passed_after and self._take_word_cut(chunk):
                    if self.cut_at_word % 2:
                        # The target's reply goes to the other pump, which has no client any more.
                        sink.sendall(chunk)
                        _cut(source)
                        return
                    break
                if budget is not None and len(chunk) > budget and self._take_cut(is_request):
                    sink.sendall(chunk[:budget])
                    break
                sink.sendall(chunk)
                budget = None if budget is None else max(budget - len(chunk), 0)
        _cut(source, sink)
        with self._lock:
            self._links.pop(number, None)

    def _take_word_cut(self, chunk: bytes) -> bool:
        with self._lock:
            if self._word_cuts_left <= 0 or self._word not in chunk:
                return False
            self._word_cuts_left -= 1
            self.cut_at_word += 1
            return True

    def _take_cut(self, is_request: bool) -> bool:
        """The two ways take turns, so that neither is spared whatever the client does."""
        with self._lock:
            if self._cuts_left <= 0 or is_request is (self.cut_requests > self.cut_responses):
                return False
            self._cuts_left -= 1
            self.cut_requests += is_request
            self.cut_responses += not is_request
            return True


def _cut(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextmanager
def running_proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    accepting = threading.Thread(target=proxy.run, daemon=True)
    accepting.start()
    try:
        yield proxy
    finally:
        proxy.close()
        accepting.join()
