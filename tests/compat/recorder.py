"""Notes which client asked for which API in which version, for docs/evidence/compatibility.md.

Brokers of the compatibility suites run in the tests' process, so it stands at their door. A client
tells its name in ApiVersions from version 3 on, and then it holds for the connection; the others
are known by the name in front of their client id.
"""

import json
import re
from pathlib import Path

from stratalog.kafka.server.acceptor import Response
from stratalog.kafka.server.dispatch import Dispatcher
from stratalog.kafka.server.handler import Body, Request
from stratalog.kafka.wire.api import ApiKey

_CLIENTS = {
    "confluent-kafka-python": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "librdkafka": "kcat",
    "kcat": "kcat",
}
"""The name under which each client is shown. kcat sends the name of its library. Other names
belong to instruments of these tests."""


class Recorder:
    def __init__(self) -> None:
        self._seen: dict[str, dict[str, set[int]]] = {}

    def install(self) -> None:
        respond = Dispatcher._response

        def noting(
            dispatcher: Dispatcher, request: Request, body: Body | None, started_s: float
        ) -> Response:
            self._note(request)
            return respond(dispatcher, request, body, started_s)

        Dispatcher._response = noting  # type: ignore[method-assign, assignment]

    def write(self, file: Path) -> None:
        """Clients by name, APIs by key, versions in order."""
        told = {
            client: {api: sorted(versions) for api, versions in sorted(apis.items(), key=_by_key)}
            for client, apis in sorted(self._seen.items())
        }
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def _note(self, request: Request) -> None:
        """A client's first request says its software, so the name is known when it is answered."""
        name = request.session.software.partition(" ")[0]
        client = _CLIENTS.get(name) or _CLIENTS.get(_leading_name(request.client_id))
        if client is not None:
            apis = self._seen.setdefault(client, {})
            apis.setdefault(request.key.name, set()).add(request.version)


def _leading_name(client_id: str | None) -> str:
    found = re.match(r"[a-z]+", client_id or "")
    return found[0] if found else ""


def _by_key(item: tuple[str, set[int]]) -> int:
    return ApiKey[item[0]]
