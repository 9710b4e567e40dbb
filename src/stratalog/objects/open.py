"""Opening a store by its URL."""

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from stratalog.clock import Clock
from stratalog.ids import Entropy, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.errors import BadStoreError
from stratalog.objects.folder import FolderStore
from stratalog.objects.keys import MAX_PREFIX_BYTES, check_key
from stratalog.objects.metered import MeteredStore
from stratalog.objects.options import CLIENT_OPTIONS, SERVICE_OPTIONS
from stratalog.objects.remote import Client, RemoteStore, Traits
from stratalog.objects.retrying import RetryingStore, RetryPolicy
from stratalog.objects.store import ObjectStore

SCHEMES = ("file", *SERVICE_OPTIONS)

_TRAITS = {
    "s3": Traits(),
    "gs": Traits(update_by_generation=True, deleted_at_once=1),
    "az": Traits(underscored_metadata=True, deleted_at_once=256),
    "memory": Traits(keeps_buffers=True),
}

# The client repeats little by itself: our own retries, above it, are counted and can be tested.
_CLIENT_RETRIES: Any = {
    "max_retries": 1,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1)},
}

# A request is one block or one part of a large object, so half a minute means a dead connection.
_CLIENT_DEFAULTS = {"timeout": "30s", "connect_timeout": "5s"}


def absolute_url(url: str) -> str:
    """The same store, for processes that have working folders of their own."""
    scheme, _, path = url.partition(":")
    if scheme != "file" or path.startswith("//"):
        return url
    return f"file:{Path(path).absolute()}"


def folder_of(url: str) -> Path | None:
    """Where the store's objects are files, for those who must not make a folder by opening it."""
    scheme, _, rest = url.partition(":")
    return _folder_path(rest) if scheme == "file" else None


def open_store(
    url: str,
    options: Mapping[str, str] | None = None,
    *,
    clock: Clock,
    entropy: Entropy = system_entropy,
    metrics: Metrics | None = None,
    retries: RetryPolicy | None = None,
) -> ObjectStore:
    """The store at `file:<path>`, `s3://`, `gs://` or `az://<bucket>/<prefix>`, or `memory:`.

    With metrics, every attempt is counted, repeated ones too. A registry can count one store.
    """
    policy = retries or RetryPolicy()
    store = _open_bare(url, options or {}, clock, entropy, policy)
    if metrics is not None:
        store = MeteredStore(store, metrics=metrics, clock=clock)
    return RetryingStore(store, clock=clock, entropy=entropy, policy=policy)


def _open_bare(
    url: str, options: Mapping[str, str], clock: Clock, entropy: Entropy, policy: RetryPolicy
) -> ObjectStore:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise BadStoreError(
            f"object store URLs begin with one of {', '.join(SCHEMES)}, not with"
            f" {scheme!r}{_nearest(scheme, SCHEMES)}"
        )
    _check_options(scheme, options)
    if scheme == "file":
        return FolderStore(_folder_path(rest), clock=clock, entropy=entropy)
    bucket, prefix = _bucket_and_prefix(scheme, rest)
    client = _connect(scheme, bucket, prefix, options, _CLIENT_RETRIES)
    shown = "memory:" if scheme == "memory" else f"{scheme}://{bucket}/{prefix}".rstrip("/")
    traits = _TRAITS[scheme]
    if scheme == "memory":
        return RemoteStore(client, shown, traits=traits, entropy=entropy)
    # Buffers of a stream cannot be yielded again, so its client must do all retries itself.
    streaming = _connect(scheme, bucket, prefix, options, _client_retries(policy))
    return RemoteStore(client, shown, traits=traits, entropy=entropy, streaming=streaming)


def _folder_path(rest: str) -> Path:
    if rest.startswith("//") and not rest.startswith("///"):
        raise BadStoreError("a folder is file:<relative path> or file:///<absolute path>")
    if not rest:
        raise BadStoreError("file: needs the path of a folder")
    return Path(rest.removeprefix("//"))


def _bucket_and_prefix(scheme: str, rest: str) -> tuple[str, str]:
    if scheme == "memory":
        if rest.strip("/"):
            raise BadStoreError("memory: takes no path, every opening makes a new, empty store")
        return "", ""
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not bucket:
        raise BadStoreError(f"{scheme} URLs look like {scheme}://<bucket>/<prefix>")
    if any(sign in bucket for sign in "@:?#") or "?" in prefix:
        raise BadStoreError(f"a {scheme} URL names a bucket; credentials belong in the options")
    return bucket, _checked_prefix(prefix.strip("/"))


def _checked_prefix(prefix: str) -> str:
    if prefix:
        check_key(prefix)
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise BadStoreError(f"the prefix {prefix!r} is longer than {MAX_PREFIX_BYTES} bytes")
    return prefix


def _check_options(scheme: str, options: Mapping[str, str]) -> None:
    known = _known_options(scheme)
    for name in options:
        if name not in known:
            raise BadStoreError(
                f"{name!r} is no option of a {scheme}: object store{_nearest(name, known)}"
            )


def _known_options(scheme: str) -> tuple[str, ...]:
    if scheme in ("file", "memory"):
        return ()
    return (*SERVICE_OPTIONS[scheme], *CLIENT_OPTIONS)


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _client_retries(policy: RetryPolicy) -> Any:
    """Our policy in the client's words. An attempt may use up the client's whole timeout."""
    return {
        "max_retries": policy.attempts - 1,
        "retry_timeout": timedelta(minutes=1),
        "backoff": {
            "init_backoff": timedelta(seconds=policy.backoff.first_s),
            "max_backoff": timedelta(seconds=policy.backoff.longest_s),
        },
    }


def _connect(
    scheme: str, bucket: str, prefix: str, options: Mapping[str, str], retries: Any
) -> Client:
    """Options win over the environment variables that each service's own tools read."""
    service: Any = {name: options[name] for name in SERVICE_OPTIONS[scheme] if name in options}
    client: Any = {**_CLIENT_DEFAULTS}
    client |= {name: options[name] for name in CLIENT_OPTIONS if name in options}
    settings: Any = {
        "prefix": prefix or None,
        "config": service,
        "client_options": client,
        "retry_config": retries,
    }
    try:
        match scheme:
            case "s3":
                return S3Store(bucket, **settings)
            case "gs":
                return GCSStore(bucket, **settings)
            case "az":
                return AzureStore(bucket, **settings)
            case _:
                return MemoryStore()
    except (BaseError, ValueError) as error:
        raise BadStoreError(f"{scheme}://{bucket}: {_first_line(error, options)}") from None


def _first_line(error: Exception, options: Mapping[str, str]) -> str:
    """The complaint, with every value that could be a secret blotted out."""
    line = str(error).partition("\n")[0]
    for name, value in options.items():
        if value and ("key" in name or "secret" in name or "token" in name):
            line = line.replace(value, "***")
    return line
