"""The child process in which the pipeline works for a broker, from the broker's side.

The broker's own process never holds a JVM. The child gets its settings, credentials included,
through its standard input, never its command line. It ends when its standard input does, so also
when the broker is killed. It inherits no sockets, and no signals of the terminal.
"""

import asyncio
import base64
import json
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from stratalog.control.pipeline.model import UnitKind
from stratalog.pipeline.errors import ChildDiedError
from stratalog.settings import Settings

WORKER = (sys.executable, "-m", "stratalog.pipeline.hosting.child_main")
_STOP_SECONDS = 30.0
_LONGEST_ANSWER_BYTES = 16 * 1024 * 1024


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, settings: Settings, command: Sequence[str] = WORKER) -> "Child":
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_ANSWER_BYTES,
            start_new_session=True,
        )
        child = cls(process)
        await child._send(pack_settings(settings))
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def run(self, kinds: Sequence[UnitKind]) -> Mapping[str, Any]:
        """Have the child do one run, and return the report, or its `error`."""
        await self._send(" ".join(kind.value for kind in kinds).encode())
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise ChildDiedError(f"the pipeline's process {self.pid} ended with exit code {code}")
        report: Mapping[str, Any] = json.loads(line)
        return report

    async def stop(self) -> None:
        """Let the child give back its claims, end Spark and exit; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            code = await self._process.wait()
            raise ChildDiedError(
                f"the pipeline's process {self.pid} ended with exit code {code}"
            ) from None


def pack_settings(settings: Settings) -> bytes:
    return base64.b64encode(pickle.dumps(settings))


def unpack_settings(line: bytes) -> Settings:
    settings: Settings = pickle.loads(base64.b64decode(line))
    return settings
