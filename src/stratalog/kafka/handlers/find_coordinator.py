"""FindCoordinator, answered with why there is none: this broker runs no groups and no transactions.

Group members are told to try again later, because a cluster that is being upgraded may get a
coordinator. Transactional producers are told to give up, which is the kinder answer to a program
that would otherwise wait in silence.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.kafka.api import ApiKey
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_GROUP = 0
_TRANSACTION = 1
_FIRST_VERSION_WITH_TYPES = 1
_FIRST_VERSION_WITH_MANY = 4
_ANSWERS = {
    _GROUP: (
        ErrorCode.coordinator_not_available,
        "this broker does not coordinate consumer groups yet: assign partitions instead",
    ),
    _TRANSACTION: (
        ErrorCode.transactional_id_authorization_failed,
        "this broker does not support transactions yet",
    ),
}


class FindCoordinatorHandler:
    async def handle(self, request: Request, body: Any) -> Body:
        kind = body.key_type if request.version >= _FIRST_VERSION_WITH_TYPES else _GROUP
        unknown = (ErrorCode.invalid_request, f"coordinators of type {kind} do not exist")
        return _response(request, body, *_ANSWERS.get(kind, unknown))

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        return _response(request, body, code_of(error), message_of(error))


def _response(request: Request, body: Any, code: ErrorCode, message: str) -> Body:
    nobody = {
        "error_code": code,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    values: Values = nobody
    if request.version >= _FIRST_VERSION_WITH_MANY:
        values = {"coordinators": [{"key": key, **nobody} for key in body.coordinator_keys]}
    return write_response(ApiKey.FIND_COORDINATOR, request.version, values)
