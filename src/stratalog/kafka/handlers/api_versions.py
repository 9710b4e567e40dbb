"""ApiVersions: what this broker speaks. The first thing that clients ask."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.kafka.api import SERVED, ApiKey, advertised
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response


class ApiVersionsHandler:
    async def handle(self, request: Request, body: Any) -> Body:  # noqa: ARG002
        served = SERVED[ApiKey.API_VERSIONS]
        if served.first <= request.version <= served.last:
            return _response(request.version, ErrorCode.none)
        # A newer client asks in a version that is not known here. Told so in the oldest form,
        # it finds the range in the list and asks again.
        return _response(0, ErrorCode.unsupported_version)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(0, code_of(error))


def _response(version: int, code: ErrorCode) -> Body:
    keys = [
        {"api_key": key, "min_version": first, "max_version": last}
        for key, first, last in advertised()
    ]
    return write_response(ApiKey.API_VERSIONS, version, {"error_code": code, "api_keys": keys})
