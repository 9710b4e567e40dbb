"""RSA envelopes: each segment's data key is kept in its manifest, sealed with a public key.

A ring holds several key pairs by id. New segments use the active pair; old segments name the pair
that opens them. To rotate, add a pair and make it the active one. Keep the old private key for as
long as segments name it. A process that only writes needs public keys only.

The seal is RSA-OAEP with SHA3-512, also for its mask, as in the plugin. Private keys are never
shown and never sent to another process, and messages name only their files.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA

from stratalog.ids import Entropy, system_entropy
from stratalog.segment.cipher import AAD_BYTES, DATA_KEY_BYTES, SegmentCipher
from stratalog.segment.errors import DataKeyError, KeyFileError, KeyMissingError
from stratalog.segment.json_object import JsonObject, decode_base64

MIN_RSA_BITS = 2048

KeyFiles: TypeAlias = Mapping[str, str | Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionHeader:
    """The part of a manifest about a segment's encryption. Nothing in it is secret."""

    key_id: str
    sealed_key: bytes
    aad: bytes

    def to_json(self) -> dict[str, object]:
        data_key = f"{self.key_id}:{b64encode(self.sealed_key).decode()}"
        return {"dataKey": data_key, "aad": b64encode(self.aad).decode()}


def parse_encryption(fields: JsonObject) -> EncryptionHeader:
    """Parse the header of a manifest. A ValueError names the field that is wrong."""
    key_id, colon, sealed = fields.text("dataKey").partition(":")
    aad = fields.base64("aad")
    fields.finish()
    if not key_id or not colon:
        raise ValueError("the data key does not name the key pair that opens it")
    sealed_key = decode_base64(sealed, "the data key")
    return EncryptionHeader(key_id=key_id, sealed_key=sealed_key, aad=aad)


class KeyRing:
    """Key pairs by id. An empty ring is enough for clusters without encryption."""

    def __init__(
        self,
        public_keys: Mapping[str, RSA.RsaKey] | None = None,
        private_keys: Mapping[str, RSA.RsaKey] | None = None,
        active: str | None = None,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._public_keys = dict(public_keys or {})
        self._private_keys = dict(private_keys or {})
        self._active = active
        self._entropy = entropy

    @classmethod
    def load(
        cls,
        public_keys: KeyFiles,
        private_keys: KeyFiles,
        active: str | None,
        *,
        entropy: Entropy = system_entropy,
    ) -> "KeyRing":
        """Read PEM files: X.509 public keys and unencrypted PKCS #8 private ones, by key id."""
        ring = cls(
            {key_id: _read_public(key_id, Path(path)) for key_id, path in public_keys.items()},
            {key_id: _read_private(key_id, Path(path)) for key_id, path in private_keys.items()},
            active,
            entropy,
        )
        ring._check(public_keys, private_keys)
        return ring

    def __repr__(self) -> str:
        public, private = sorted(self._public_keys), sorted(self._private_keys)
        return f"<KeyRing public={public} private={private} active={self._active!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring is never sent to another process: load its files there")

    @property
    def active(self) -> str | None:
        """The id of the pair for new segments. None if no segment can be encrypted."""
        return self._active

    def can_open(self, key_id: str) -> bool:
        return key_id in self._private_keys

    def new_cipher(self) -> tuple[SegmentCipher, EncryptionHeader]:
        """Make a new data key, and its envelope for the manifest."""
        if self._active is None:
            raise KeyMissingError("encryption needs an active key pair: name one in the settings")
        data_key, aad = self._entropy(DATA_KEY_BYTES), self._entropy(AAD_BYTES)
        seal = PKCS1_OAEP.new(
            self._public_keys[self._active], hashAlgo=SHA3_512, randfunc=self._entropy
        )
        header = EncryptionHeader(key_id=self._active, sealed_key=seal.encrypt(data_key), aad=aad)
        return SegmentCipher(data_key, aad, self._entropy), header

    def open(self, header: EncryptionHeader, name: str) -> SegmentCipher:
        """Open the data key of the segment `name`."""
        private_key = self._private_keys.get(header.key_id)
        if private_key is None:
            raise KeyMissingError(
                f"{name}: its key pair {header.key_id!r} has no private key here:"
                " add the file to the settings"
            )
        try:
            seal = PKCS1_OAEP.new(private_key, hashAlgo=SHA3_512)
            data_key = seal.decrypt(header.sealed_key)
        except (ValueError, TypeError):
            raise _unopened(header, name) from None
        if len(data_key) != DATA_KEY_BYTES:
            raise _unopened(header, name)
        return SegmentCipher(data_key, header.aad, self._entropy)

    def _check(self, public_files: KeyFiles, private_files: KeyFiles) -> None:
        if self._active is not None and self._active not in self._public_keys:
            raise KeyMissingError(
                f"the active key pair {self._active!r} has no public key here:"
                " add the file to the settings"
            )
        for key_id in self._public_keys.keys() & self._private_keys.keys():
            if self._public_keys[key_id].n != self._private_keys[key_id].n:
                raise KeyFileError(
                    f"{public_files[key_id]} and {private_files[key_id]} are not the two halves"
                    f" of the key pair {key_id!r}: segments written with it could not be read"
                )


def _unopened(header: EncryptionHeader, name: str) -> DataKeyError:
    return DataKeyError(
        f"{name}: its data key does not open with the key pair {header.key_id!r}: either"
        " the private key is another one than when it was written, or the manifest is damaged"
    )


def _read_public(key_id: str, path: Path) -> RSA.RsaKey:
    key = _read_key(key_id, path, "public")
    if key.has_private():
        raise KeyFileError(
            f"{path} holds a private key: give the public key {key_id!r} a file of its own, as"
            " `openssl pkey -pubout` writes it"
        )
    return key


def _read_private(key_id: str, path: Path) -> RSA.RsaKey:
    key = _read_key(key_id, path, "private")
    if not key.has_private():
        raise KeyFileError(f"{path} holds a public key where the private key {key_id!r} belongs")
    return key


def _read_key(key_id: str, path: Path, half: str) -> RSA.RsaKey:
    if not key_id or ":" in key_id:
        raise KeyFileError(f"the key id {key_id!r} of {path} must not be empty nor hold a colon")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise KeyFileError(
            f"cannot read {path}, the {half} key {key_id!r}: {error.strerror}"
        ) from None
    try:
        key = RSA.import_key(text)
    # The parser raises different errors, depending on the damage, and may quote the key.
    except (ValueError, IndexError, TypeError, ArithmeticError):
        raise KeyFileError(
            f"{path} is not a PEM file with an RSA key without a passphrase,"
            f" which the {half} key {key_id!r} must be"
        ) from None
    if key.size_in_bits() < MIN_RSA_BITS:
        raise KeyFileError(
            f"{path} is an RSA key of {key.size_in_bits()} bits: make one of {MIN_RSA_BITS} or more"
        )
    return key
