"""Errors of backups and of their restore."""

from stratalog.errors import CallError, DamagedError


class BackupDamagedError(DamagedError):
    """A part of a backup is missing, or its bytes are not the ones that were written."""


class NoBackupError(CallError):
    """There is no backup of that name."""


class NotEmptyError(CallError):
    """The database holds a cluster already."""


class BackupNewerError(CallError):
    """The backup was made by a newer version."""
