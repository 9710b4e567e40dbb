"""The open files of a process: sockets of clients, files of a folder store, connections of the
database all come out of one number that the system sets.

Clients may take only a part of it. Otherwise idle sockets would keep the broker from opening an
object, and the produces of all other clients would fail.
"""

import resource

RESERVE = 512
"""Descriptors that no client gets. The folder store has a file and a folder open per thread, the
database and an object store over HTTP have their pools: some tens each with the default settings.
The rest is for larger pools."""


def most_clients() -> int:
    """Return how many connections of clients leave the reserve, or half of a small limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 2**31 - 1
    return max(limit - RESERVE, limit // 2)


def allow_clients(count: int) -> None:
    """Raise the process's own limit so that this many clients fit, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = count + RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        _raise_to(wanted, hard)


def _raise_to(wanted: int, hard: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # macOS says that there is no limit and refuses more than its own. Fewer clients fit then.
        return
