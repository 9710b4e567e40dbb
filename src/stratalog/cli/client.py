"""Kafka clients for the commands, with errors that say how to go on."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AdminClient,
    TopicMetadata,
)

from stratalog.cli.errors import BrokerRefusedError, BrokerUnreachableError, NoSuchTopicError

CONNECT_SECONDS = 5.0
"""For the first request of a command: enough for a slow network, and not too long to wait."""
REQUEST_SECONDS = 30.0
_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)

_Answer = TypeVar("_Answer")


def client_config(bootstrap: str, **more: object) -> dict[str, Any]:
    # Without the log level librdkafka writes its own lines to stderr beside our errors.
    return {"bootstrap.servers": bootstrap, "client.id": "stratalog-cli", "log_level": 0, **more}


def as_our_error(error: KafkaError, bootstrap: str) -> BrokerUnreachableError | BrokerRefusedError:
    if error.code() in _UNREACHABLE:
        return BrokerUnreachableError(
            f"no Kafka broker answers at {bootstrap}: "
            "start one with `stratalog up`, or name another with --bootstrap"
        )
    return BrokerRefusedError(error.str())


@contextmanager
def our_errors(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise as_our_error(error.args[0], bootstrap) from error


class KafkaAdmin:
    """A Kafka admin client whose calls wait for their answers."""

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        with our_errors(bootstrap):
            self.client = AdminClient(client_config(bootstrap, **(options or {})))

    def topics(self) -> dict[str, TopicMetadata]:
        """Return all topics by name. A request for one topic by its name could create it."""
        with our_errors(self.bootstrap):
            return dict(self.client.list_topics(timeout=CONNECT_SECONDS).topics)

    def cluster_id(self) -> str | None:
        with our_errors(self.bootstrap):
            return self.client.list_topics(timeout=CONNECT_SECONDS).cluster_id

    def brokers(self) -> list[tuple[str, int]]:
        """The addresses of all brokers."""
        with our_errors(self.bootstrap):
            found = self.client.list_topics(timeout=CONNECT_SECONDS).brokers
        return [(str(broker.host), broker.port) for broker in found.values()]

    def topic(self, name: str) -> TopicMetadata:
        topics = self.topics()
        if name not in topics:
            raise no_such_topic(name, topics)
        return topics[name]

    def answer(self, future: "Future[_Answer]") -> _Answer:
        try:
            with our_errors(self.bootstrap):
                return future.result(REQUEST_SECONDS)
        except TimeoutError as error:
            raise BrokerUnreachableError(
                f"{self.bootstrap} did not answer within {REQUEST_SECONDS:.0f} seconds"
            ) from error


def no_such_topic(name: str, known: dict[str, TopicMetadata]) -> NoSuchTopicError:
    close = get_close_matches(name, list(known), n=1)
    hint = f'did you mean "{close[0]}"?' if close else "`stratalog topic list` shows all topics"
    return NoSuchTopicError(f'there is no topic "{name}": {hint}')
