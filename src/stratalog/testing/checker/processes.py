"""Brokers as processes of their own, which can be killed, paused and started again."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from stratalog.clock import SYSTEM_CLOCK
from stratalog.environment import ENVIRONMENT
from stratalog.settings import StorageSettings
from stratalog.testing.checker.proxy import Proxy
from stratalog.testing.errors import BrokerStartError

_GREETING = b"Stratalog is up"
_START_SECONDS = 60.0
_STOP_SECONDS = 40.0
_STEP_SECONDS = 0.05
_DEFAULT_PORTS = {"postgresql": 5432, "postgres": 5432, "http": 80}

FAST: Mapping[str, Mapping[str, object]] = {
    "broker": {"lease_ms": 2000, "shutdown_timeout_ms": 5000},
    "block": {"window_ms": 20, "retry_ms": 15_000},
    "fetch": {"poll_ms": 200},
    "groups": {"initial_rebalance_delay_ms": 200},
    "janitor": {"interval_ms": 3000, "grace_ms": 3000, "backup_window_ms": 0},
}
"""Short times, so that a run of a minute goes through as much as a day of a real cluster."""


@dataclass(slots=True, kw_only=True)
class Links:
    """The proxies of one broker."""

    clients: Proxy
    control: Proxy | None = None
    """None for a control plane without a network."""
    objects: Proxy | None = None

    @property
    def all(self) -> list[Proxy]:
        return [proxy for proxy in (self.clients, self.control, self.objects) if proxy is not None]


@dataclass(slots=True)
class BrokerProcess:
    """One broker: its settings file, its log, and its process while there is one."""

    number: int
    port: int
    storage: StorageSettings
    links: Links
    folder: Path
    overrides: Sequence[str] = ()
    """Settings as `stratalog up --set` takes them."""
    meanwhile: Sequence[str] = ()
    """More of them, for as long as a fault lasts."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a fault that ends or starts the process."""
    process: subprocess.Popen[bytes] | None = None
    expected_dead: bool = True
    crashes: list[int] = field(default_factory=list)
    """Exit codes of processes that ended by themselves."""
    most_memory_bytes: int = 0

    @classmethod
    async def prepare(
        cls, number: int, storage: StorageSettings, folder: Path, overrides: Sequence[str] = ()
    ) -> "BrokerProcess":
        port = free_port()
        links = Links(clients=Proxy("127.0.0.1", port))
        options = dict(storage.object_options)
        links.control = _proxy_to(storage.control)
        links.objects = _proxy_to(options.get("endpoint", ""))
        for proxy in links.all:
            await proxy.start()
        control = storage.control
        if links.control is not None:
            control = _moved(control, links.control.address)
        if links.objects is not None:
            options["endpoint"] = _moved(options["endpoint"], links.objects.address)
        behind = replace(storage, control=control, object_options=options)
        return cls(number, port, behind, links, folder, overrides)

    @property
    def address(self) -> str:
        host, port = self.links.clients.address
        return f"{host}:{port}"

    @property
    def log_file(self) -> Path:
        return self.folder / f"broker-{self.number}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def start(self) -> None:
        """Start, and return when the broker serves. A start that a fault prevents is retried."""
        deadline = SYSTEM_CLOCK.monotonic() + _START_SECONDS
        while SYSTEM_CLOCK.monotonic() < deadline:
            if await self.starts():
                self.expected_dead = False
                return
        raise BrokerStartError(f"broker {self.number} does not start: see {self.log_file}")

    async def starts(self) -> bool:
        """Start once. False if the process ends before it serves."""
        greetings = self._greetings()
        self._launch()
        return await self._greeted(greetings)

    async def restart(self, meanwhile: Sequence[str] = ()) -> None:
        """Kill the process, and start another one with these settings for a while."""
        self.kill()
        self.meanwhile = meanwhile
        await self.start()

    def kill(self) -> None:
        self.note_crash()
        self.expected_dead = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        if self.running:
            self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self.running:
            self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        self.note_crash()
        self.expected_dead = True
        if self.running:
            self._signal(signal.SIGTERM)
            if not await self.ended(_STOP_SECONDS):
                self.kill()
        for proxy in self.links.all:
            await proxy.close()

    def note_crash(self) -> bool:
        """Tell whether the process has ended by itself since its last start, and note it."""
        crashed = not self.expected_dead and not self.running
        if crashed and self.process is not None:
            self.crashes.append(self.process.returncode)
            self.expected_dead = True
        return crashed

    def note_memory(self) -> None:
        """Note the most memory that the process ever had, where the system tells it."""
        if self.process is None or not self.running:
            return
        status = Path(f"/proc/{self.process.pid}/status")
        with suppress(OSError):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            most_bytes = int(lines.get("VmHWM", "0 kB").split()[0]) * 1024
            self.most_memory_bytes = max(self.most_memory_bytes, most_bytes)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _launch(self) -> None:
        config = self.folder / f"broker-{self.number}.toml"
        # The file may hold the keys of an object store.
        config.touch(mode=0o600)
        config.write_text(self._config())
        command = [sys.executable, "-m", "stratalog.cli.main", "up", "--config", f"{config}"]
        for override in (*self.overrides, *self.meanwhile):
            command += ["--set", override]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def _config(self) -> str:
        sections: dict[str, dict[str, object]] = {name: dict(v) for name, v in FAST.items()}
        sections["broker"] |= {
            "listen": f"127.0.0.1:{self.port}",
            "advertise": self.address,
            "id": self.number,
        }
        sections["storage"] = {"control": self.storage.control, "objects": self.storage.objects}
        sections["storage.object_options"] = dict(self.storage.object_options)
        return "\n".join(_toml_section(name, values) for name, values in sections.items())

    def _greetings(self) -> int:
        return self.log_file.read_bytes().count(_GREETING) if self.log_file.exists() else 0

    async def _greeted(self, before: int) -> bool:
        """Wait until the process logs that it is up. False if it ends before.

        A new process appends to the log of the old ones.
        """
        deadline = SYSTEM_CLOCK.monotonic() + _START_SECONDS
        while self.running and SYSTEM_CLOCK.monotonic() < deadline:
            if self._greetings() > before:
                return True
            await asyncio.sleep(_STEP_SECONDS)
        return False

    async def ended(self, seconds: float) -> bool:
        assert self.process is not None
        try:
            await asyncio.to_thread(self.process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def free_port() -> int:
    """Find a free port. If another process takes it while a broker is down, the broker fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _proxy_to(url: str) -> Proxy | None:
    """Find the address in a URL. None if the URL leads to no other process.

    TLS would not survive another host name.
    """
    parts = urlsplit(url)
    if parts.hostname is None or parts.scheme not in _DEFAULT_PORTS:
        return None
    return Proxy(parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def _moved(url: str, address: tuple[str, int]) -> str:
    """Replace the address in a URL."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{address[0]}:{address[1]}"))


def _toml_section(name: str, values: Mapping[str, object]) -> str:
    # A JSON string or number is a TOML one as well.
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])
