"""ApiVersions: the APIs and versions that this broker speaks. The first thing that clients ask."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.kafka.registry import served
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response

ADVERTISED_PRODUCE_FIRST = 0
"""Produce 0 to 2 are named although they are refused, as Kafka 4 does: librdkafka takes a
higher minimum for a broker that cannot compress (KAFKA-18659)."""


FEATURES = {"group.version": 1}
"""Kafka's features that have levels, with the level that is served. Level 1 of `group.version` is
the consumer protocol (KIP-848). Clients may ask for a feature before they use it, and
`kafka-features` shows them."""
FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients fail on a feature whose lowest level is 0, so Kafka hides it from them, too."""


class ApiVersionsBody(NamedTuple):
    client_software_name: str = ""
    client_software_version: str = ""


class ApiVersionsHandler(Handler[ApiVersionsBody]):
    key = ApiKey.API_VERSIONS
    versions = Versions(0, 4, 3)
    rights = ()
    body = ApiVersionsBody
    in_every_worker = True
    in_turn = False

    def read(
        self, version: int, frame: memoryview, position: int, max_entries: int
    ) -> tuple[ApiVersionsBody, int]:
        """The body of a version that is not served cannot be read."""
        if version not in self.versions:
            return ApiVersionsBody(), 0
        return super().read(version, frame, position, max_entries)

    async def handle(self, request: Request, body: ApiVersionsBody) -> Body:
        if body.client_software_name:
            software = f"{body.client_software_name} {body.client_software_version}"
            request.session.software = software
        if request.version in self.versions:
            return _response(request.version, ErrorCode.none)
        # A newer client asks in a version that is not known here. Answered in the oldest form,
        # it finds the range in the list and asks again.
        return _response(0, ErrorCode.unsupported_version)

    def refuse(self, request: Request, body: ApiVersionsBody, error: Exception) -> Body:  # noqa: ARG002
        return _response(0, code_of(error))


def advertised() -> list[tuple[ApiKey, int, int]]:
    """Key, first and last version of every API, as ApiVersions names them."""
    return [
        (key, ADVERTISED_PRODUCE_FIRST if key is ApiKey.PRODUCE else versions.first, versions.last)
        for key, versions in served().items()
    ]


def _response(version: int, code: ErrorCode) -> Body:
    keys = [
        {"api_key": key, "min_version": first, "max_version": last}
        for key, first, last in advertised()
    ]
    supported = [
        {"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()
    ]
    finalized = [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, level in FEATURES.items()
    ]
    values = {
        "error_code": code,
        "api_keys": keys,
        "supported_features": supported if version >= FIRST_VERSION_WITH_LEVEL_0 else [],
        # Levels come with the version of the broker and never change, so neither does their epoch.
        "finalized_features_epoch": 0,
        "finalized_features": finalized,
    }
    return write_response(ApiKey.API_VERSIONS, version, values)
