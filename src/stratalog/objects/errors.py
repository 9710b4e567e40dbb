"""Errors of object stores."""

from stratalog.errors import CallError, DamagedError, RetriableError, StaleError


class BadKeyError(CallError):
    """A key that not every store could hold."""


class KeyConflictError(CallError):
    """In this store a key cannot be an object and the folder of other objects at once."""


class BadMetadataError(CallError):
    """User metadata that not every store could hold."""


class BadStoreError(CallError):
    """The URL or the options of an object store make no sense."""


class StoreRefusedError(CallError):
    """The object store understood the request and will not serve it, now or later."""


class ShortReadError(DamagedError):
    """The store answered with fewer bytes than the object should have."""


class ObjectNotFoundError(StaleError):
    """There is no object under this key (any more)."""


class ObjectExistsError(CallError):
    """A conditional create found another writer's object under this key."""


class ObjectChangedError(StaleError):
    """A conditional overwrite found another version than the one it expected."""


class StoreUnavailableError(RetriableError):
    """The object store did not answer, or asked to slow down."""


class FolderGoneError(RetriableError):
    """The folder of a store is no longer the one that was opened: its mount went away, or it was
    removed. Retried, because the mount may come back."""


class StoreFullError(RetriableError):
    """The object store has no room left. Retried, because room may be made."""


class StoreAccessError(CallError):
    """The object store refuses us: credentials, permissions or a missing bucket."""
