"""Mistakes and failures of a node as a whole."""

from stratalog.errors import CallError


class WorkerFailedError(CallError):
    """A worker of this broker could not start, or had to stop writing."""


class UnsharedStorageError(CallError):
    """Several workers are asked for, and only one process can open the storage."""
