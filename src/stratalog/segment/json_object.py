"""A JSON object that is read field by field, and must have no other fields.

A wrong field raises a ValueError that names the field. The caller adds the name of the object.
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping

INT32_LAST = 2**31 - 1


class JsonObject:
    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path} is not a JSON object")
        self._fields: dict[str, object] = dict(value)
        self._path = path

    def names(self) -> list[str]:
        """The fields that were not taken yet."""
        return list(self._fields)

    def take(self, field: str) -> object:
        if field not in self._fields:
            raise ValueError(f"{self._name(field)} is missing")
        return self._fields.pop(field)

    def take_optional(self, field: str) -> object | None:
        return self._fields.pop(field, None)

    def integer(self, field: str, *, first: int = 0, last: int = INT32_LAST) -> int:
        """Take a whole number within bounds. The default bounds are the ones of sizes in Kafka."""
        value = self.take(field)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{self._name(field)} is not a whole number")
        if not first <= value <= last:
            raise ValueError(f"{self._name(field)} is {value}, not in [{first}, {last}]")
        return value

    def text(self, field: str) -> str:
        value = self.take(field)
        if not isinstance(value, str):
            raise ValueError(f"{self._name(field)} is not a text")
        return value

    def flag(self, field: str) -> bool:
        value = self.take(field)
        if not isinstance(value, bool):
            raise ValueError(f"{self._name(field)} is neither true nor false")
        return value

    def base64(self, field: str) -> bytes:
        return decode_base64(self.text(field), self._name(field))

    def nested(self, field: str) -> "JsonObject":
        return JsonObject(self.take(field), self._name(field))

    def finish(self) -> None:
        for field in self._fields:
            raise ValueError(f"{self._name(field)} is not a known field")

    def _name(self, field: str) -> str:
        return f"{self._path}.{field}"


def decode_base64(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base 64") from None
