"""FindCoordinator: names the broker that coordinates a group. A group without one gets one here.

Transactional producers get an error that makes them give up, with the reason. Java's client shows
the message of any error that it does not expect here. librdkafka shows that of a failed
authorization alone, and asks again for ever after others. It is the one client of today that asks
in version 2.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.group_names import check_group_id
from stratalog.admin.rights import DESCRIBE_GROUP
from stratalog.control.groups.errors import NotCoordinatorError
from stratalog.errors import CallError, StratalogError
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_GROUP = 0
_TRANSACTION = 1
_FIRST_VERSION_WITH_TYPES = 1
_FIRST_VERSION_WITH_MANY = 4
_VERSION_OF_LIBRDKAFKA = 2


class FindCoordinatorBody(NamedTuple):
    key: str = ""
    key_type: int = 0
    coordinator_keys: Sequence[str] = ()


class FindCoordinatorHandler(Handler[FindCoordinatorBody]):
    key = ApiKey.FIND_COORDINATOR
    versions = Versions(0, 6, 3)
    rights = (DESCRIBE_GROUP,)
    body = FindCoordinatorBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups

    async def handle(self, request: Request, body: FindCoordinatorBody) -> Body:
        kind = body.key_type if request.version >= _FIRST_VERSION_WITH_TYPES else _GROUP
        if kind == _TRANSACTION:
            return _response(request, [_untransacted(request, key) for key in _keys(request, body)])
        return _response(request, [await self._found(kind, key) for key in _keys(request, body)])

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)

    async def _found(self, kind: int, key: str) -> Values:
        try:
            if kind != _GROUP:
                raise CallError(f"coordinators of type {kind} do not exist")
            check_group_id(key, may_be_empty=True)
            broker = await self._groups.locate(key)
        except NotCoordinatorError as error:
            return _not_found(key, ErrorCode.coordinator_not_available, str(error))
        except StratalogError as error:
            return _not_found(key, group_code_of(error), str(error))
        return {
            "key": key,
            "error_code": ErrorCode.none,
            "error_message": None,
            "node_id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
        }


def _keys(request: Request, body: FindCoordinatorBody) -> list[str]:
    if request.version >= _FIRST_VERSION_WITH_MANY:
        return list(body.coordinator_keys)
    return [body.key]


def _untransacted(request: Request, key: str) -> Values:
    code = ErrorCode.unsupported_version
    if request.version == _VERSION_OF_LIBRDKAFKA:
        code = ErrorCode.transactional_id_authorization_failed
    return _not_found(key, code, "this broker does not support transactions yet")


def _not_found(key: str, code: ErrorCode, message: str) -> Values:
    return {
        "key": key,
        "error_code": code,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


def _response(request: Request, found: list[Values]) -> Body:
    many = request.version >= _FIRST_VERSION_WITH_MANY
    values = {"coordinators": found} if many else found[0]
    return write_response(ApiKey.FIND_COORDINATOR, request.version, values)
