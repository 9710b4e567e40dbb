"""The types of fields in kio's schemas."""

import types
import typing
from dataclasses import Field, is_dataclass
from typing import Any


def is_array(field: Field[Any]) -> bool:
    return any(typing.get_origin(kind) is tuple for kind in without_none(field.type))


def is_nullable(field: Field[Any]) -> bool:
    return type(None) in alternatives(field.type)


def nested_schema(annotation: Any) -> Any:
    """The schema in an annotation: of an entity, or of the elements of an array. None if the
    annotation has none."""
    if is_dataclass(annotation):
        return annotation
    found = (nested_schema(inner) for inner in typing.get_args(annotation))
    return next((schema for schema in found if schema is not None), None)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def without_none(annotation: Any) -> list[Any]:
    return [kind for kind in alternatives(annotation) if kind is not type(None)]
