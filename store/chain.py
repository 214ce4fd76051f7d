"""The chain over everything a session ever archived: who edits, swaps or cuts off history shows it (architecture.md).

Each archived entry is committed to under a salt of its own, `c = HMAC(salt, entry)`, and each link covers all before it,
`link = SHA-256(link before, c)`. To forget a step, entry and salt are erased and `c` stays: the chain still closes, and
nothing of the entry can be guessed from it. The head says where the chain ends; with a key it cannot be made up.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Self

import orjson

from store.jcs import serialized

HEAD_FORMAT, HEAD_VERSION = "mmu-head", 1
SALT_BYTES = 16
HEAD_BYTES = 512  # a head is written over the one before, in a block that disks write whole


def genesis(session: str) -> str:
    """The link before the first entry of a session."""
    return hashlib.sha256(b"mmu-chain-1\n" + session.encode("utf-8", "surrogatepass")).hexdigest()


def commitment(salt: str, entry: dict[str, Any]) -> str:
    """What the chain keeps of an entry, 64 hex digits. `salt`: hex digits that nobody can guess."""
    return hmac.digest(bytes.fromhex(salt), serialized(entry), "sha256").hex()


def link(before: str, committed: str) -> str:
    """The link that follows one, over a commitment (both 64 hex digits)."""
    return hashlib.sha256(bytes.fromhex(before) + bytes.fromhex(committed)).hexdigest()


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain: `count` entries, the last `link`."""

    count: int
    link: str

    def __str__(self) -> str:
        return f"{self.count}:{self.link}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError for another text."""
        count, colon, last = text.partition(":")
        if not colon or not count.isdecimal() or len(last) != 64 or set(last) - set("0123456789abcdef"):
            raise ValueError(f"{text[:80]!r} is no chain head; it looks like 12:ab34... with 64 hex digits")
        return cls(int(count), last)

    def to_bytes(self, session: str, key: bytes | None) -> bytes:
        """The head as a document; sealed with `key` if there is one, with a plain digest if not."""
        body = {"format": HEAD_FORMAT, "version": HEAD_VERSION, "session": session, "head": str(self)}
        raw = serialized({**body, "keyed": key is not None, "seal": _seal(body, key)})
        return raw.ljust(-(-(len(raw) + 1) // HEAD_BYTES) * HEAD_BYTES - 1) + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes, session: str, key: bytes | None) -> Self:
        """Read a head and check its seal. Raises ValueError that says what does not hold."""
        try:
            document = orjson.loads(raw)
            keyed, seal = document.pop("keyed"), document.pop("seal")
            found = cls.parse(document["head"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"unreadable ({error})") from error
        if keyed and key is None:
            raise ValueError("sealed with a key, and none was given")
        if key is not None and not keyed:
            raise ValueError("not sealed with the key")
        body = {"format": HEAD_FORMAT, "version": HEAD_VERSION, "session": session, "head": str(found)}
        if document != body or not hmac.compare_digest(str(seal), _seal(body, key)):
            raise ValueError("its seal does not hold")
        if raw != found.to_bytes(session, key):
            raise ValueError("written in another form")
        return found


def _seal(body: dict[str, Any], key: bytes | None) -> str:
    raw = serialized(body)
    return hashlib.sha256(raw).hexdigest() if key is None else hmac.digest(key, raw, "sha256").hex()
