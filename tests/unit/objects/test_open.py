import re
from pathlib import Path

import pytest
from obstore import exceptions
from obstore.store import MemoryStore

from stratalog.clock import SystemClock
from stratalog.errors import StratalogError
from stratalog.objects import (
    BadKeyError,
    BadStoreError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortReadError,
    StoreAccessError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    open_store,
)
from stratalog.objects.obstore_errors import explain
from stratalog.objects.remote import RemoteStore, Traits

CLOCK = SystemClock()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s33://bucket", "did you mean 's3'?"),
        ("memry:", "did you mean 'memory'?"),
        ("/just/a/path", "begin with one of file, s3, gs, az, memory"),
        ("", "begin with one of"),
        ("s3:bucket", "look like s3://<bucket>/<prefix>"),
        ("s3://", "look like s3://<bucket>/<prefix>"),
        ("s3://key:secret@bucket/x", "credentials belong in the options"),
        ("s3://bucket/x?key=secret", "credentials belong in the options"),
        ("s3://bucket/" + "p" * 121, "longer than 120 bytes"),
        ("memory:x", "takes no path"),
        ("file:", "needs the path"),
        ("file://host/x", "file:///<absolute path>"),
        ("az://container", "Account must be specified"),
    ],
)
def test_a_url_that_makes_no_sense_is_explained(url: str, message: str) -> None:
    with pytest.raises(BadStoreError, match=re.escape(message)) as caught:
        open_store(url, clock=CLOCK)
    assert "secret" not in str(caught.value)


def test_a_prefix_must_be_a_key() -> None:
    with pytest.raises(BadKeyError):
        open_store("s3://bucket/a/../b", clock=CLOCK)


@pytest.mark.parametrize(
    ("url", "option", "message"),
    [
        (
            "s3://b",
            "endpont",
            "'endpont' is no option of a s3: object store; did you mean 'end",
        ),
        ("s3://b", "time_out", "did you mean 'timeout'?"),
        ("gs://b", "endpoint", "no option of a gs:"),
        ("file:x", "endpoint", "no option of a file:"),
        ("memory:", "region", "no option of a memory:"),
    ],
)
def test_an_unknown_option_is_named_with_its_nearest(url: str, option: str, message: str) -> None:
    with pytest.raises(BadStoreError, match=re.escape(message)):
        open_store(url, {option: "secret"}, clock=CLOCK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unsigned_payload": "perhaps"}, "perhaps"),
        ({"server_side_encryption": "rot13"}, "rot13"),
        ({"timeout": "soon"}, "soon"),
    ],
)
def test_a_bad_value_of_an_option_is_explained(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadStoreError, match=message):
        open_store("s3://bucket", options, clock=CLOCK)


def test_a_bad_secret_is_not_repeated() -> None:
    options = {"server_side_encryption": "sse-c", "sse_customer_key_base64": "hush!"}
    with pytest.raises(BadStoreError) as caught:
        open_store("s3://bucket", options, clock=CLOCK)
    assert "hush!" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "shown"),
    [
        (
            "s3://bucket/a/b/",
            {"access_key_id": "me", "secret_access_key": "hush"},
            "s3://bucket/a/b",
        ),
        ("s3://bucket", {"unsigned_payload": "true", "timeout": "3s"}, "s3://bucket"),
        ("gs://bucket/a", {"skip_signature": "true"}, "gs://bucket/a"),
        ("az://box/a", {"account_name": "me", "account_key": "aHVzaA=="}, "az://box/a"),
        ("memory:", {}, "memory:"),
        ("memory://", {}, "memory:"),
    ],
)
def test_a_store_shows_its_url_without_secrets(
    url: str, options: dict[str, str], shown: str
) -> None:
    assert open_store(url, options, clock=CLOCK).url == shown


async def test_a_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("file:deep/er", f"file:{tmp_path}/deep/er", f"file://{tmp_path}/deep/er"):
        store = open_store(url, clock=CLOCK)
        assert store.url == f"file://{tmp_path}/deep/er"
        await store.close()


def answer(status: int, code: str) -> str:
    return (
        f"Generic S3 error: Error performing PUT http://user:hush@host/x - Server returned"
        f" non-2xx status code: {status} Reason: <Error><Code>{code}</Code>hush</Error>"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.GenericError(answer(500, "InternalError")), StoreUnavailableError),
        (exceptions.GenericError(answer(503, "SlowDown")), StoreUnavailableError),
        (exceptions.GenericError(answer(429, "TooManyRequests")), StoreUnavailableError),
        (exceptions.GenericError(answer(408, "RequestTimeout")), StoreUnavailableError),
        (exceptions.GenericError("HTTP error: error sending request"), StoreUnavailableError),
        (exceptions.GenericError(answer(507, "X")), StoreFullError),
        (exceptions.GenericError(answer(500, "XMinioStorageFull")), StoreFullError),
        (exceptions.GenericError(answer(403, "QuotaExceeded")), StoreFullError),
        (exceptions.GenericError(answer(400, "InvalidArgument")), StoreRefusedError),
        (exceptions.GenericError(answer(416, "InvalidRange")), ShortReadError),
        (exceptions.AlreadyExistsError(answer(412, "PreconditionFailed")), ObjectExistsError),
        (exceptions.PreconditionError(answer(412, "PreconditionFailed")), ObjectChangedError),
        (exceptions.PermissionDeniedError(answer(403, "AccessDenied")), StoreAccessError),
        (exceptions.UnauthenticatedError(answer(401, "X")), StoreAccessError),
        (exceptions.NotSupportedError("hush"), StoreRefusedError),
        (FileNotFoundError(answer(404, "NoSuchKey")), ObjectNotFoundError),
        (FileNotFoundError(answer(404, "NoSuchBucket")), StoreAccessError),
        (FileNotFoundError(answer(404, "NoSuchUpload")), StoreUnavailableError),
        (OSError(answer(403, "AccessDenied")), StoreAccessError),
    ],
)
def test_the_clients_errors_are_told_in_our_words(
    error: Exception, expected: type[StratalogError]
) -> None:
    ours = explain(error, "get", "k")
    assert type(ours) is expected
    assert "'k'" in str(ours)
    assert "hush" not in str(ours)


def test_a_put_that_finds_nothing_has_no_bucket() -> None:
    ours = explain(FileNotFoundError(answer(404, "NoSuchBucket")), "put", "k")
    assert type(ours) is StoreAccessError
    assert "(404 NoSuchBucket)" in str(ours)


async def test_where_metadata_allows_no_dashes_they_are_replaced_and_restored() -> None:
    client = MemoryStore()
    traits = Traits(underscored_metadata=True, keeps_buffers=True)
    store = RemoteStore(client, "memory:", traits=traits, entropy=bytes)
    await store.put("x", [b"1"], metadata={"made-by": "a-b"})
    assert client.get("x").attributes == {"made_by": "a-b"}
    assert (await store.head("x")).metadata == {"made-by": "a-b"}
