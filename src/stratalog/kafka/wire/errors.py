"""Mistakes in a request as a whole."""

from stratalog.errors import CallError


class FrameSizeError(CallError):
    """The length in front of a request is absurd: the client does not speak the Kafka protocol."""


class MalformedRequestError(CallError):
    """The bytes of a request do not fit its API and version."""


class TooManyEntriesError(CallError):
    """A request names more topics, partitions, groups or other entries than the broker reads."""


class UnsupportedRequestError(CallError):
    """The API key or its version is not served here. Kafka closes the connection on those."""


class RelayEndedError(CallError):
    """The worker that should answer a request has gone, or refused the request."""


class InvalidRecordsError(CallError):
    """A produce request carries no records for a partition."""


class RequiredAcksError(CallError):
    """A produce request asks for acknowledgements other than -1, 0 or 1."""


class SchemaMismatchError(TypeError):
    """A declared request does not fit the protocol's schema: a mistake in the handler."""
