"""Errors of opening a cluster: the stores are not its own, or cannot be reached from here."""

import socket

from stratalog.errors import CallError, DamagedError, RetriableError


class MarkerDamagedError(DamagedError):
    """The store's marker cannot be read."""


class MarkerMissingError(CallError):
    """A store has no marker, although this cluster has claimed its store."""


class StoreOccupiedError(CallError):
    """A store that was never claimed holds objects of others."""


class WrongStoreError(CallError):
    """The store belongs to another cluster, or to a newer version of Stratalog."""


class StoreSetBackError(WrongStoreError):
    """The store is a copy from before, or was set back."""


class ControlPlaneBehindError(CallError):
    """The store has seen a newer control plane than this one."""


CLAIM_LOST = (MarkerMissingError, WrongStoreError, ControlPlaneBehindError)
"""After one of these nothing may be written to the store: it is not, or not with this control
plane, the cluster's own."""


class RecoveryUnfinishedError(CallError):
    """The control plane was restored or rebuilt, and its recovery is not finished."""


class MarkerContendedError(RetriableError):
    """Other brokers changed the marker between each read and write of it."""


class WrongSegmentStoreError(CallError):
    """The settings name another store for the cluster's own segments than the one they are in."""


class PrivateStoreError(CallError):
    """The object store is in the memory of one process, and another process wants to use it."""


class WorkerStoreError(RetriableError):
    """On this worker, the store's address does not lead to the cluster's store.

    It is retriable because the store may yet be mounted, and other workers may have it.
    """

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"{url} is not this cluster's store on {socket.gethostname()}: {why}; mount the store"
            " there, or let the address lead to it"
        )
