"""`stratalog up`: one broker in the foreground, from the first line to a clean stop."""

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit, urlunsplit

import typer
from rich.markup import escape

from stratalog import descriptors
from stratalog.cli.errors import PortTakenError
from stratalog.cli.options import (
    Config,
    Control,
    Data,
    LogLevel,
    Objects,
    Quiet,
    Set,
    Verbose,
    examples,
    log_flags,
    settings_from,
)
from stratalog.cli.output import say
from stratalog.clock import SYSTEM_CLOCK
from stratalog.logs import configure_logs
from stratalog.memory import (
    collect_garbage_by_time,
    collect_garbage_rarely,
    keep_freed_memory,
)
from stratalog.settings import Settings
from stratalog.threads import share_the_lock

if TYPE_CHECKING:
    from stratalog.node.broker import Broker

EPILOG = examples(
    "stratalog up",
    "stratalog up --data /var/lib/stratalog --listen 127.0.0.1:9093",
    "stratalog up --objects s3://bucket/prefix --control postgresql://user@host/stratalog",
    "stratalog up --set block.window_ms=50ms --set topic.retention.ms=86400000",
)


def up(
    listen: Annotated[
        str | None,
        typer.Option("--listen", "-l", metavar="HOST:PORT", help="Where to accept Kafka clients."),
    ] = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of topics created without a number.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that serve clients: one per processor to spare."),
    ] = None,
    pipeline: Annotated[
        bool,
        typer.Option(help="Convert aged records into segments beside the broker (Spark)."),
    ] = True,
    log_level: LogLevel = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Start a broker and keep it running until Ctrl-C.

    Without options it listens on localhost:9092 and keeps its data in ./stratalog-data. Records
    that were acknowledged are stored, so that a broker can be stopped, or killed, at any time.
    """
    flags = [f"broker.listen={listen}"] if listen is not None else []
    if partitions is not None:
        flags.append(f"broker.default_partitions={partitions}")
    if workers is not None:
        flags.append(f"broker.workers={workers}")
    if not pipeline:
        flags.append("tiering.enabled=false")
    flags += log_flags(log_level, verbose=verbose, quiet=quiet)
    settings = settings_from(
        config, overrides, data=data, objects=objects, control=control, flags=flags
    )
    configure_logs(settings.log)
    # Imported late: no other command needs an event loop of this size to start.
    import uvloop

    descriptors.allow_clients(settings.broker.max_connections)
    keep_freed_memory()
    collect_garbage_rarely()
    share_the_lock()
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    # Imported late, because a broker needs nearly all rooms, and other commands do not.
    from stratalog.node.broker import Broker

    stop = asyncio.Event()
    stop_on_signals(stop)
    starting = asyncio.create_task(Broker.start(settings, with_pipeline=True))
    giving_up = asyncio.create_task(_cancel_on(stop, starting))
    try:
        broker = await starting
    except OSError as error:
        raise explain(error, settings.broker.listen) from error
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        say("Stopped.")
        return
    finally:
        giving_up.cancel()
    collecting = asyncio.create_task(collect_garbage_by_time(SYSTEM_CLOCK.sleep))
    _greet(broker.address, broker.broker_id, settings)
    await _until_first(stop.wait(), broker.fence.closed())
    collecting.cancel()
    if broker.fence.error is not None:
        await broker.stop()
        raise broker.fence.error
    say("Stopping: writing out all accepted records. Ctrl-C again stops at once.")
    await broker.stop()
    say("Stopped.")


async def _until_first(*waits: Coroutine[object, object, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _cancel_on(stop: asyncio.Event, starting: "asyncio.Task[Broker]") -> None:
    """Stop a broker that is still starting, perhaps because it waits for its database or store."""
    await stop.wait()
    starting.cancel()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at the first signal. The second signal ends the process at once."""

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)


def explain(error: OSError, listen: str) -> Exception:
    if error.errno != errno.EADDRINUSE:
        return error
    return PortTakenError(
        f"{listen} is taken, perhaps by another broker: "
        "stop it, or listen elsewhere, for example with --listen 127.0.0.1:9093"
    )


def _greet(address: tuple[str, int], broker_id: int, settings: Settings) -> None:
    host, port = address
    reachable = "localhost" if host in ("0.0.0.0", "::") else host
    bootstrap = settings.broker.advertise or f"{reachable}:{port}"
    flag = "" if bootstrap in ("127.0.0.1:9092", "localhost:9092") else f" -b {bootstrap}"
    say(f"[bold green]Stratalog is up[/] on [bold]{host}:{port}[/], broker {broker_id}.")
    say(f"  objects        {escape(without_password(settings.storage.objects))}")
    say(f"  control plane  {escape(without_password(settings.storage.control))}")
    if settings.broker.workers > 1:
        say(f"  workers        {settings.broker.workers} processes")
    _warn_of_strangers(settings.broker.listen.rpartition(":")[0].strip("[]"))
    command = escape(_command())
    say("\nIn another terminal:")
    say(f"  echo hello | {command} produce greetings{flag}")
    say(f"  {command} consume greetings --from-beginning{flag}")
    say(f"or any Kafka client, with bootstrap.servers={bootstrap}. Ctrl-C stops the broker.\n")


def _warn_of_strangers(host: str) -> None:
    """An empty host stands for all interfaces."""
    if host in ("localhost", "::1") or host.startswith("127."):
        return
    say(
        "[bold yellow]Anybody who reaches this port may read, write and delete everything:[/]"
        " there is no authentication yet. Let a firewall decide who does."
    )


def _command() -> str:
    """Return a command that works in another terminal. After `make up`, only the environment's own
    folder has it."""
    beside = Path(sys.executable).with_name("stratalog")
    if shutil.which("stratalog") or not beside.exists():
        return "stratalog"
    return os.path.relpath(beside)


def without_password(url: str) -> str:
    """Return an address that may be shown. Its query is removed, too, because PostgreSQL also takes
    passwords there."""
    parts = urlsplit(url)
    if parts.password is None:
        return url.partition("?")[0]
    user = f"{parts.username}@" if parts.username else ""
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""
    return urlunsplit(parts._replace(netloc=user + host, query=""))
