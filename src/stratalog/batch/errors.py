"""What can be wrong with a record batch."""

from stratalog.errors import DamagedError


class BatchDamagedError(DamagedError):
    """These bytes are not a record batch. `position` is the first byte that is wrong."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


class CrcMismatchError(BatchDamagedError):
    """The bytes differ from those that the checksum was made of."""


class UnsupportedMagicError(BatchDamagedError):
    """Only version 2 of the record batch is stored."""

    def __init__(self, position: int, magic: int) -> None:
        super().__init__(position, f"magic {magic} is not 2")
        self.magic = magic


class UnsupportedCodecError(BatchDamagedError):
    """The attributes name a compression codec that does not exist."""
