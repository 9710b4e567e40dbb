"""Failures of a simulation itself."""


class DeadlockError(Exception):
    """Every task waits for another one, and no timer is left."""
