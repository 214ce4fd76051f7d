"""Reading a saved value back: JSON to a dataclass, with every type checked, so that an edited file is refused, not obeyed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read(kind: type[T], document: Any, where: str = "state") -> T:
    """A value of a dataclass from its JSON object. Fields that it does not know are passed over.

    Raises ValueError that names the field and what was expected there.
    """
    value = _value(kind, document, where)
    assert isinstance(value, kind)
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, document: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, document, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if document is None and NoneType in inner:
            return None
        return _value(next(one for one in inner if one is not NoneType), document, where)
    if origin in (tuple, frozenset):
        if not isinstance(document, list):
            raise ValueError(f"{where}: a list was expected")
        return origin([_value(inner[0], item, f"{where}[{number}]") for number, item in enumerate(document)])
    if kind is float and type(document) is int:
        return float(document)
    if type(document) is not kind:
        raise ValueError(f"{where}: {kind.__name__} was expected, this is {type(document).__name__}")
    return document


def _record(kind: type, document: Any, where: str) -> Any:
    if not isinstance(document, Mapping):
        raise ValueError(f"{where}: an object was expected")  # noqa: TRY004 - one kind of error for all damage
    values = {}
    for field in fields(kind):
        if field.name in document:
            values[field.name] = _value(_hints(kind)[field.name], document[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**values)
