"""The canonical form of nodes, entries, projections and policies: RFC 8785 over a domain where it is cheap.

Values are strings, integers with absolute value below 2**53, booleans, null, lists, and objects with ASCII keys. Inside
that domain a fast serializer with sorted keys gives exactly the bytes of RFC 8785 (a property test compares them with a
full implementation). Outside it the two differ (1.0, -0.0, 1e16, keys above U+FFFF), so such a value is refused.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from store.errors import InvalidNodeError

_SAFE = 2**53


def _check(value: Any, where: str) -> None:
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if not -_SAFE < value < _SAFE:
            raise InvalidNodeError(where, f"integer {value} does not fit 53 bits")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if not isinstance(item, str):
                _check(item, f"{where}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise InvalidNodeError(where, f"key {key!r} is not an ASCII string")
            _check(item, f"{where}.{key}")
    else:
        raise InvalidNodeError(where, f"{type(value).__name__} has no canonical form here")


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a value of the domain above.

    Raises InvalidNodeError for a value outside the domain or a string that is not well-formed (lone surrogate).
    """
    _check(value, "value")
    return serialized(value)


def serialized(value: Any) -> bytes:
    """The same bytes for a value that is known to be in the domain: one that was read or built here."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise InvalidNodeError("value", str(error)) from error


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of some bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def canonical_sha256(value: Any) -> str:
    """The SHA-256 of a value's canonical bytes. Raises InvalidNodeError as `canonical` does."""
    return sha256_hex(canonical(value))
