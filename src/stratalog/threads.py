"""The interpreter's lock, which the threads of a process share."""

import sys

SWITCH_SECONDS = 50e-6
"""The time after which a thread that waits for the interpreter's lock asks for it.

Uploads to a folder and commits to SQLite run on threads, and need the lock after each call to the
system. By default they ask for it after 5 ms without a release. A busy event loop releases it in
every turn and takes it back at once. Each release starts the 5 ms again, so that an upload waits
for many turns, and its producers with it. `bench.starvation` shows their wait."""


def share_the_lock() -> None:
    """Let threads get the lock from a busy event loop. For each process that serves clients."""
    sys.setswitchinterval(SWITCH_SECONDS)
