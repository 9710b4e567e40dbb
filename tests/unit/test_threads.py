"""Every process that serves clients lets its threads get the interpreter's lock."""

import socket
import subprocess
import sys

import pytest

from stratalog.threads import SWITCH_SECONDS

TELL = "print(sys.getswitchinterval())"
UP = f"""
import sys, uvloop
from stratalog.cli.main import app
uvloop.run = lambda served: (served.close(), {TELL})
app(["up", "--quiet"])
"""
WORKER = f"""
import sys
from stratalog.node.workers import process
process.main()
{TELL}
"""


def told_by(program: str, *arguments: str, fds: tuple[int, ...] = ()) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        pass_fds=fds,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_the_process_of_a_broker_shares_the_lock() -> None:
    assert float(told_by(UP)) == pytest.approx(SWITCH_SECONDS)


def test_the_process_of_a_further_worker_shares_the_lock() -> None:
    """The worker ends at once, because the first one has ended before it."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, socket.create_server(("127.0.0.1", 0)) as listening:
        fds = (theirs.fileno(), listening.fileno())
        assert float(told_by(WORKER, *map(str, fds), fds=fds)) == pytest.approx(SWITCH_SECONDS)
