"""What was forgotten in a session: enough to know a step again when a client sends it, nothing to learn it from."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from store.errors import IntegrityCheckError
from store.jcs import serialized, sha256_hex

FORGOTTEN_FILE = "forgotten.jsonl"
_HEAD = {"format": "mmu-forgotten", "version": 1}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Forgotten steps. `salt` keys the marks of their match keys; `steps` gives the time of forgetting (ISO 8601) by step
    id; `marks` the step ids by mark."""

    salt: str = ""
    steps: Mapping[int, str] = field(default_factory=dict)
    marks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def known(self, match_key: str) -> tuple[int, ...]:
        """The forgotten steps that a client's copy may be."""
        return self.marks.get(_mark(self.salt, match_key), ()) if self.marks else ()

    @staticmethod
    def record(step_id: int, match_key: str, salt: str, at: str) -> dict[str, Any]:
        """What is kept of a step: its id, when, and its match key under a key."""
        return {"step": step_id, "why": "forgotten", "at": at, "salt": salt, "mark": _mark(salt, match_key)}

    def having(self, records: Sequence[Mapping[str, Any]]) -> Self:
        """With these records too; one that is known changes nothing."""
        rows = {one["step"]: (one["at"], one["mark"]) for one in [*self._rows(), *records]}
        return self._of(self.salt or records[0]["salt"], rows)

    @classmethod
    def _of(cls, salt: str, rows: Mapping[int, tuple[str, str]]) -> Self:
        marks: dict[str, tuple[int, ...]] = {}
        for step_id, (_, mark) in rows.items():
            marks[mark] = (*marks.get(mark, ()), step_id)
        return cls(salt, {step_id: at for step_id, (at, _) in rows.items()}, marks)

    def _rows(self) -> Iterator[dict[str, Any]]:
        mark_of = {step_id: mark for mark, step_ids in self.marks.items() for step_id in step_ids}
        return ({"step": step_id, "at": at, "mark": mark_of[step_id]} for step_id, at in self.steps.items())

    def to_bytes(self) -> bytes:
        """The document: a head with the salt, then a line per step."""
        rows = b"".join(serialized(row) + b"\n" for row in self._rows())
        return serialized({**_HEAD, "salt": self.salt, "sha256": _digest(self.salt, rows)}) + b"\n" + rows

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The inverse of `to_bytes`; nothing is forgotten where there is no document. Raises IntegrityCheckError."""
        if not raw:
            return cls()
        try:
            first, rows = raw.split(b"\n", 1)
            head = orjson.loads(first)
            salt = str(head["salt"])
            if head != {**_HEAD, "salt": salt, "sha256": _digest(salt, rows)} or serialized(head) != first:
                raise ValueError("its head does not fit")
            listed = [orjson.loads(line) for line in rows.splitlines()]
            return cls._of(salt, {int(row["step"]): (str(row["at"]), str(row["mark"])) for row in listed})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityCheckError(
                None, FORGOTTEN_FILE, "a list of forgotten steps", f"unreadable ({error})"
            ) from error


def _digest(salt: str, rows: bytes) -> str:
    return sha256_hex(salt.encode() + rows)


def _mark(salt: str, match_key: str) -> str:
    return hmac.digest(salt.encode(), match_key.encode(), "sha256").hex()
