"""From settings to what executors need to get at the bytes."""

from collections.abc import Mapping
from pathlib import Path

from Crypto.PublicKey import RSA

from stratalog.objects.open import absolute_url
from stratalog.scan.errors import ScanRefusedError
from stratalog.scan.model import ScanPlace
from stratalog.segment.errors import KeyFileError
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import Settings


def place_of(settings: Settings) -> ScanPlace:
    """Reads the files of private keys, because executors have none. Folders become absolute."""
    storage, remote = settings.storage, settings.remote
    if storage.objects.startswith("memory:"):
        raise ScanRefusedError(
            "storage.objects is in the memory of another process, where a scan cannot reach it:"
            " use a folder or a bucket"
        )
    return ScanPlace(
        objects_url=absolute_url(storage.objects),
        segments_url=absolute_url(remote.objects or ""),
        object_options=dict(storage.object_options),
        private_keys_pem={
            key_id: _read_key(key_id, Path(path)) for key_id, path in remote.private_keys.items()
        },
    )


def key_ring(private_keys_pem: Mapping[str, str]) -> KeyRing:
    """A ring that opens segments and seals none."""
    return KeyRing(
        private_keys={key_id: _parse_key(key_id, pem) for key_id, pem in private_keys_pem.items()}
    )


def _parse_key(key_id: str, pem: str) -> RSA.RsaKey:
    try:
        return RSA.import_key(pem)
    # The parser raises whatever its innermost part stumbles over, and may quote what it read.
    except (ValueError, IndexError, TypeError, ArithmeticError):
        raise KeyFileError(
            f"the private key {key_id!r} is not an RSA key in PEM without a passphrase"
        ) from None


def _read_key(key_id: str, path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no text"
        raise KeyFileError(f"cannot read {path}, the private key {key_id!r}: {reason}") from None
