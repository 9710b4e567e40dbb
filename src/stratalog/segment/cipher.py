"""AES-256-GCM as the plugin uses it: IV (12 bytes), then the cipher text, then the tag (16 bytes).

Each segment has a data key of its own and 32 bytes of additional data that all its units share.
IVs are random: a segment has a few thousand units, far fewer than 96 bits allow for one key.
"""

from typing import NoReturn

from Crypto.Cipher import AES

from stratalog.ids import Entropy, system_entropy
from stratalog.objects.store import Buffer

DATA_KEY_BYTES = 32
AAD_BYTES = 32
IV_BYTES = 12
TAG_BYTES = 16
SEAL_BYTES = IV_BYTES + TAG_BYTES
"""The bytes that sealing adds to each unit."""


class SegmentCipher:
    """Seals and unseals the chunks and indexes of one segment. Safe to share between threads."""

    __slots__ = ("_aad", "_data_key", "_entropy")

    def __init__(self, data_key: bytes, aad: bytes, entropy: Entropy = system_entropy) -> None:
        assert len(data_key) == DATA_KEY_BYTES
        self._data_key = data_key
        self._aad = aad
        self._entropy = entropy

    def __repr__(self) -> str:
        return "<SegmentCipher>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a data key leaves its process sealed, in an EncryptionHeader, or not")

    def seal(self, plain: Buffer) -> bytearray:
        iv = self._entropy(IV_BYTES)
        sealed = bytearray(len(plain) + SEAL_BYTES)
        sealed[:IV_BYTES] = iv
        with memoryview(sealed) as view:
            cipher = AES.new(self._data_key, AES.MODE_GCM, nonce=iv, mac_len=TAG_BYTES)
            cipher.update(self._aad)
            _, tag = cipher.encrypt_and_digest(plain, output=view[IV_BYTES:-TAG_BYTES])
        sealed[-TAG_BYTES:] = tag
        return sealed

    def unseal(self, sealed: Buffer) -> bytearray:
        """Return the plain bytes. Raises ValueError if they are not the bytes that were sealed."""
        if len(sealed) < SEAL_BYTES:
            raise ValueError(f"{len(sealed)} bytes are too few to be encrypted ones")
        view = memoryview(sealed)
        plain = bytearray(len(sealed) - SEAL_BYTES)
        cipher = AES.new(
            self._data_key, AES.MODE_GCM, nonce=bytes(view[:IV_BYTES]), mac_len=TAG_BYTES
        )
        cipher.update(self._aad)
        tag = bytes(view[-TAG_BYTES:])
        try:
            cipher.decrypt_and_verify(view[IV_BYTES:-TAG_BYTES], tag, output=plain)
        except ValueError:
            raise ValueError("the encrypted bytes were changed, or belong to another key") from None
        return plain
