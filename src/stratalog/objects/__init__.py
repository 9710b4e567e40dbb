"""The object store: opened by URL, seen through one interface."""

from stratalog.objects.faulty import Fault, FaultPlan, FaultyStore, RandomFaults, ScriptedFaults
from stratalog.objects.keys import BadKeyError, BadMetadataError, KeyConflictError
from stratalog.objects.obstore_errors import StoreRefusedError
from stratalog.objects.open import BadStoreError, open_store
from stratalog.objects.ranges import ShortReadError
from stratalog.objects.retrying import RetryPolicy
from stratalog.objects.store import (
    Buffer,
    Create,
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    Replace,
    StoreAccessError,
    StoredObject,
    StoreFullError,
    StoreUnavailableError,
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
