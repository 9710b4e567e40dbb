"""The driver's look at an uploaded object, before anything refers to it.

An executor may see a store of its own under the same address: a copy that was mounted, a replica.
The bytes that it read there were right, but the object that it wrote there is out of reach for all
other processes.
"""

from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.errors import UploadGoneError


async def check_uploaded(store: ObjectStore, key: str, size_bytes: int) -> None:
    """Raise unless the object is there with all its bytes. This takes one request."""
    try:
        info = await store.head(key)
    except ObjectNotFoundError:
        raise UploadGoneError(
            f"{key} is not in {store.url}: executors write to another store, or it was deleted"
            " before anything referred to it"
        ) from None
    if info.size_bytes != size_bytes:
        raise UploadGoneError(
            f"{key} has {info.size_bytes} bytes in {store.url}, and {size_bytes} were written:"
            " executors write to another store"
        )
