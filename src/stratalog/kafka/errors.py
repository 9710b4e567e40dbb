"""Mistakes in the handlers of the Kafka APIs."""


class DuplicateHandlerError(TypeError):
    """Two handlers declare the same API."""
