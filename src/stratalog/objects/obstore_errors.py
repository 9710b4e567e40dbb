"""The mapping of obstore errors to ours.

Their texts quote addresses, headers and answers, which may carry signatures and tokens. Only the
HTTP status and the server's error code are taken over, and the original is not chained.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from stratalog.errors import StratalogError
from stratalog.objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortReadError,
    StoreAccessError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_FULL_CODES = ("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull")
_RETRIED_STATUSES = (408, 409, 425, 429)


@contextmanager
def explained(doing: str, key: str) -> Iterator[None]:
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise explain(error, doing, key) from None


def explain(error: Exception, doing: str, key: str) -> StratalogError:
    """Our error for one of obstore's, raised while `doing` something with `key`."""
    text = str(error)
    what = f"{doing} {key!r}{_summary(text)}"
    match error:
        case FileNotFoundError() if "NoSuchUpload" in text:
            # Finished by a request whose reply was lost, or removed by the server.
            return StoreUnavailableError(f"{what}: the upload is gone")
        case FileNotFoundError() if doing == "put" or "NoSuchBucket" in text:
            return StoreAccessError(f"{what}: the bucket or container does not exist")
        case FileNotFoundError():
            return ObjectNotFoundError(f"{what}: there is no such object")
        case exceptions.AlreadyExistsError():
            return ObjectExistsError(f"{what}: the key is taken")
        case exceptions.PreconditionError():
            return ObjectChangedError(f"{what}: the object is not the expected version")
        case exceptions.PermissionDeniedError() | exceptions.UnauthenticatedError():
            return StoreAccessError(f"{what}: check the credentials and their permissions")
        case exceptions.NotSupportedError() | exceptions.InvalidPathError() | ValueError():
            return StoreRefusedError(f"{what}: the store cannot do this")
    return _explain_by_status(text, what)


def _explain_by_status(text: str, what: str) -> StratalogError:
    status = _status(text)
    if status == 416 or "Invalid range" in text:
        return ShortReadError(f"{what}: the object ends before the wanted range")
    if status == 507 or any(code in text for code in _FULL_CODES):
        return StoreFullError(f"{what}: the store has no room left")
    if status in (401, 403):
        return StoreAccessError(f"{what}: check the credentials and their permissions")
    if "builder error" in text:
        return StoreRefusedError(f"{what}: for a plain http endpoint set allow_http=true")
    if 400 <= status < 500 and status not in _RETRIED_STATUSES:
        return StoreRefusedError(f"{what}: the store refuses this request")
    return StoreUnavailableError(f"{what}: the store did not answer properly")


def _summary(text: str) -> str:
    code = _CODE.search(text)
    details = [f"{_status(text)}"] if _status(text) else []
    details += [code[1]] if code else []
    return f" ({' '.join(details)})" if details else ""


def _status(text: str) -> int:
    found = _STATUS.search(text)
    return int(found[1]) if found else 0
