"""The object store: opened by URL, seen through one interface."""

from stratalog.objects.errors import (
    BadKeyError,
    BadMetadataError,
    BadStoreError,
    KeyConflictError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortReadError,
    StoreAccessError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from stratalog.objects.faulty import Fault, FaultPlan, FaultyStore, RandomFaults, ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.objects.retrying import RetryPolicy
from stratalog.objects.store import (
    Buffer,
    Create,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    Replace,
    StoredObject,
)

__all__ = [
    "BadKeyError",
    "BadMetadataError",
    "BadStoreError",
    "Buffer",
    "Create",
    "Fault",
    "FaultPlan",
    "FaultyStore",
    "KeyConflictError",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectStore",
    "Overwrite",
    "PutMode",
    "RandomFaults",
    "Range",
    "Replace",
    "RetryPolicy",
    "ScriptedFaults",
    "ShortReadError",
    "StoreAccessError",
    "StoreFullError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "StoredObject",
    "open_store",
]
