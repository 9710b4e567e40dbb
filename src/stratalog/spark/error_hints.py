"""A hint for errors that most likely mean that the user forgot to name the cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from stratalog.control.errors import NoControlPlaneError
from stratalog.opening.location import ClusterLocation
from stratalog.scan.errors import TopicNotFoundError
from stratalog.settings_source import FILE_VARIABLE
from stratalog.spark.errors import SinkTopicError

_MISSING = (NoControlPlaneError, TopicNotFoundError, SinkTopicError)


@contextmanager
def hint_at_settings(location: ClusterLocation) -> Iterator[None]:
    """Add the hint to such an error, if only defaults say where the cluster is."""
    try:
        yield
    except _MISSING as error:
        if location.names_a_cluster():
            raise
        raise type(error)(
            f'{error}; no settings file was found: name it by .option("config", ...) or by'
            f" ${FILE_VARIABLE}"
        ) from None
