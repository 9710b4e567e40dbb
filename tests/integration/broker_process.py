"""A broker in a process of its own, which a test may kill."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from tests.support.clients.client import ANSWER_SECONDS


class BrokerProcess:
    """A broker as users start it."""

    def __init__(self, flags: list[str], folder: Path, *, open_files: int | None = None) -> None:
        limited = [] if open_files is None else _limited(open_files)
        command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
        # The pipe is not read after the start, and a full one would stop the broker.
        command.append("--quiet")
        self._process = subprocess.Popen(
            [*limited, *command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(ANSWER_SECONDS)
        self._process.stdout.close()

    def wait(self) -> tuple[int, str]:
        """Wait for the broker to end by itself. Return its exit code, and its output since
        it was ready."""
        said, _ = self._process.communicate(timeout=ANSWER_SECONDS)
        return self._process.returncode, said.decode()

    @cached_property
    def address(self) -> str:
        """Known when the broker is ready, which is waited for here, so that two start at once."""
        assert self._process.stdout is not None
        said = b""
        for line in self._process.stdout:
            said += line
            if line.startswith(b"Stratalog is up on "):
                return line.split()[4].rstrip(b",").decode()
        raise AssertionError(f"the broker did not start:\n{said.decode()}")


def _limited(open_files: int) -> list[str]:
    return ["sh", "-c", f'ulimit -n {open_files} && exec "$@"', "sh"]


@contextmanager
def process(
    flags: list[str], folder: Path, *, open_files: int | None = None
) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(flags, folder, open_files=open_files)
    try:
        yield broker
    finally:
        broker.stop()
