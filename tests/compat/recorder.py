"""Notes which client asked for which API in which version, for docs/compatibility.md.

Brokers of the compatibility suites run in the tests' process, so it stands at their door. A client
tells its name in ApiVersions from version 3 on, and then it holds for the connection; the others
are known by the name in front of their client id.
"""

import json
import re
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from stratalog.kafka.acceptor import Accepted
from stratalog.kafka.api import ApiKey
from stratalog.kafka.dispatch import Dispatcher
from stratalog.kafka.errors import MalformedRequestError, UnsupportedRequestError
from stratalog.kafka.request import Request, parse_request
from stratalog.kafka.schema_reader import read_request

_FIRST_VERSION_WITH_SOFTWARE = 3
_CLIENTS = {
    "confluent-kafka-python": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "librdkafka": "kcat",
    "kcat": "kcat",
}
"""By which name each is shown. kcat tells the name of its library; whoever is not listed is one
of our own instruments."""


class Recorder:
    def __init__(self) -> None:
        self._seen: dict[str, dict[str, set[int]]] = {}
        # A connection accepts its requests in a task of its own, so this is one per connection.
        self._software: ContextVar[str | None] = ContextVar("software", default=None)

    def install(self) -> None:
        accept = Dispatcher.accept

        async def noting(dispatcher: Dispatcher, frame: bytearray) -> Accepted:
            self._note(frame)
            return await accept(dispatcher, frame)

        Dispatcher.accept = noting  # type: ignore[method-assign, assignment]

    def write(self, file: Path) -> None:
        """Clients by name, APIs by key, versions in order."""
        told = {
            client: {api: sorted(versions) for api, versions in sorted(apis.items(), key=_by_key)}
            for client, apis in sorted(self._seen.items())
        }
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def _note(self, frame: bytearray) -> None:
        try:
            request = parse_request(frame)
            if request.key is ApiKey.API_VERSIONS:
                self._software.set(_software(request))
        except (MalformedRequestError, UnsupportedRequestError):
            return
        name = self._software.get() or _leading_name(request.client_id)
        client = _CLIENTS.get(name)
        if client is not None:
            apis = self._seen.setdefault(client, {})
            apis.setdefault(request.key.name, set()).add(request.version)


def _software(request: Request) -> str | None:
    if request.version < _FIRST_VERSION_WITH_SOFTWARE or not request.body_start:
        return None
    body: Any = read_request(request.key, request.version, request.frame, request.body_start)
    return str(body.client_software_name)


def _leading_name(client_id: str | None) -> str:
    found = re.match(r"[a-z]+", client_id or "")
    return found[0] if found else ""


def _by_key(item: tuple[str, set[int]]) -> int:
    return ApiKey[item[0]]
