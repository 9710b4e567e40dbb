"""The RSA keys of encrypted segments, as files of this machine and as texts for workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from Crypto.PublicKey import RSA

from stratalog.ids import Entropy, system_entropy
from stratalog.segment.errors import KeyFileError
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import RemoteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTexts:
    """PEM texts of keys by name, for workers that do not have the files. Its repr shows no key."""

    public: Mapping[str, str] = field(default_factory=dict, repr=False)
    private: Mapping[str, str] = field(default_factory=dict, repr=False)
    active: str | None = None
    """The key pair that new segments are encrypted for."""

    def ring(self, entropy: Entropy = system_entropy) -> KeyRing:
        if self.active is not None and self.active not in self.public:
            raise KeyFileError(f"the public key {self.active!r} did not reach this worker")
        return KeyRing(
            {key_id: _parse("public", key_id, pem) for key_id, pem in self.public.items()},
            {key_id: _parse("private", key_id, pem) for key_id, pem in self.private.items()},
            active=self.active,
            entropy=entropy,
        )


def load_keys(remote: RemoteSettings) -> KeyRing:
    """Read the files of all keys, for programs that encrypt segments and read them."""
    return KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)


def load_private_keys(remote: RemoteSettings) -> KeyRing:
    """Read the files of the private keys, for programs that only read segments."""
    return KeyRing.load({}, remote.private_keys, None)


def opening_keys(remote: RemoteSettings) -> KeyTexts:
    """Read the private keys, for workers that read encrypted segments."""
    return KeyTexts(
        private={
            key_id: _read("private", key_id, Path(path))
            for key_id, path in remote.private_keys.items()
        }
    )


def sealing_keys(remote: RemoteSettings) -> KeyTexts:
    """Read the active public key, for workers that encrypt segments and never open one."""
    active = remote.encryption_key
    if active is None or active not in remote.public_keys:
        return KeyTexts(active=active)
    path = Path(remote.public_keys[active])
    return KeyTexts(public={active: _read("public", active, path)}, active=active)


def _read(half: str, key_id: str, path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise KeyFileError(f"cannot read {path}, the {half} key {key_id!r}: {reason}") from None


def _parse(half: str, key_id: str, pem: str) -> RSA.RsaKey:
    try:
        return RSA.import_key(pem)
    # The parser raises the error of its innermost part, which may quote the text of the key.
    except (ValueError, IndexError, TypeError, ArithmeticError):
        raise KeyFileError(
            f"the {half} key {key_id!r} is not an RSA key in PEM without a passphrase"
        ) from None
