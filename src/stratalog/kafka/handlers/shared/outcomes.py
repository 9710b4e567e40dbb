"""Outcomes of `admin/` as responses tell them."""

from kio.schema.errors import ErrorCode

from stratalog.errors import StratalogError
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.wire.schema_writer import Values


def outcome_code(outcome: object) -> ErrorCode:
    return code_of(outcome) if isinstance(outcome, StratalogError) else ErrorCode.none


def outcome_values(outcome: object) -> Values:
    """The two fields that most responses have for each entry of their request."""
    if isinstance(outcome, StratalogError):
        return {"error_code": code_of(outcome), "error_message": message_of(outcome)}
    return {"error_code": ErrorCode.none, "error_message": None}
