"""A sealed generation of the log: what was archived in it, without the nodes, and a table to find a step by.

It is a log like the open one, its last two records are `table` (step ids, ascending, and the byte where each record begins)
and `seal` (where the chain stands, and where the table is). Opening reads the seal alone.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from store.errors import IntegrityCheckError, StoreReadError
from store.log import Damage, Record, frame, records
from store.node import IndexEntry

_SEAL_BYTES = 600  # more than a seal is long


class Replaced(Exception):
    """A sealed generation was written anew while it was being read: look at it again."""


KEPT = ("archive", "forgotten")  # the links of the chain; the other records of a generation end with it


def sealed_bytes(head: dict[str, Any], bodies: Iterable[dict[str, Any]], seal: dict[str, Any]) -> bytes:
    """A generation as it is sealed, from its head, its records of the chain, and where the chain stands after it."""
    out = bytearray(frame(head))
    places: dict[int, int] = {}
    for body in bodies:
        if body["record"] == "archive":
            places[body["entry"]["step_id"]] = len(out)
        out += frame({name: value for name, value in body.items() if name != "node"})
    ids, table = sorted(places), len(out)
    out += frame({"record": "table", "steps": ids, "at": [places[step_id] for step_id in ids]})
    ends = {"first": ids[0], "last": ids[-1]} if ids else {"first": 0, "last": -1}
    out += frame({"record": "seal", **seal, **ends, "table": table})
    return bytes(out)


@dataclass(frozen=True)
class Sealed:
    """One sealed generation. `before` and `count`: length of the chain at its begin and at its end; `link` the last one;
    `first` and `last` the lowest and highest step id in its table."""

    path: Path
    generation: int
    before: int
    count: int
    link: str
    epoch: int
    steps: int
    exported: tuple[int, str, str]
    first: int
    last: int
    table: int
    size: int
    file: tuple[int, int, int]

    @classmethod
    def open(cls, path: Path) -> Sealed | None:
        """The generation in a file; None if no seal ends it. Raises StoreReadError."""
        with _opened(path) as descriptor:
            found = os.fstat(descriptor)
            start = max(0, found.st_size - _SEAL_BYTES)
            raw = os.pread(descriptor, found.st_size - start, start)
        ends = [one for one in records(raw, start) if isinstance(one, Record)]
        if not ends or ends[-1].body.get("record") != "seal" or ends[-1].stop != found.st_size:
            return None
        seal = {name: value for name, value in ends[-1].body.items() if name != "record"}
        try:
            return cls(path, **seal, size=found.st_size, file=_identity(found))
        except TypeError:
            return None

    @classmethod
    def damaged(cls, path: Path, generation: int, before: int) -> Sealed:
        """What stands for a generation without a seal: no table, and of its records those that read."""
        file = _identity(path.stat()) if path.exists() else (0, 0, 0)
        return cls(path, generation, before, before, "", 0, 0, (0, "", ""), 0, -1, file[1], file[1], file)

    def _read(self, start: int, size: int) -> bytes:
        """Bytes of the file that was opened. Raises Replaced if another stands in its place, StoreReadError."""
        with _opened(self.path) as descriptor:
            if _identity(os.fstat(descriptor)) != self.file:
                raise Replaced(self.path)
            return os.pread(descriptor, size, start)

    @cached_property
    def _table(self) -> tuple[Sequence[int], Sequence[int]]:
        """Step ids, ascending, and where their records begin."""
        if self.last < self.first:
            return array("q"), array("q")
        for one in records(self._read(self.table, self.size - self.table), self.table):
            if isinstance(one, Record) and one.body["record"] == "table":
                return array("q", one.body["steps"]), array("q", one.body["at"])
        # The table is damaged: it can be made again from the records themselves.
        whole = [one for one in self.records() if isinstance(one, Record) and one.body["record"] == "archive"]
        places = {one.body["entry"]["step_id"]: one.start for one in whole}
        ids = sorted(places)
        return array("q", ids), array("q", [places[step_id] for step_id in ids])

    def records(self) -> Iterator[Record | Damage]:
        """Everything in it, in order. Raises StoreReadError."""
        return records(self._read(0, self.size) if self.size else b"")

    def ids(self) -> Sequence[int]:
        """The steps of its table, ascending."""
        return self._table[0]

    def place(self, step_id: int) -> int | None:
        """The byte where a step's record begins; None if it is not in the table."""
        if not self.first <= step_id <= self.last:
            return None
        ids, at = self._table
        found = bisect_left(ids, step_id)
        return at[found] if found < len(ids) and ids[found] == step_id else None

    def entry(self, step_id: int) -> IndexEntry | None:
        """The entry of a step; None if it is not here.

        Raises IntegrityCheckError if its record does not read, StoreReadError.
        """
        start = self.place(step_id)
        if start is None:
            return None
        body = self._record(start)
        try:
            if body is not None and body["entry"]["step_id"] == step_id:
                return IndexEntry.parse(body["entry"])
        except (KeyError, TypeError):
            pass
        raise IntegrityCheckError(step_id, f"{self.path.name} at byte {start}", "a whole record", "damaged")

    def _record(self, start: int) -> dict[str, Any] | None:
        """The record that begins at a byte, None if it is damaged."""
        parts = self._read(start, 32).split(b" ", 2)
        if len(parts) != 3 or not parts[1].isdigit():
            return None
        raw = self._read(start, len(parts[0]) + len(parts[1]) + 3 + int(parts[1]))
        one = next(records(raw, start), None)
        return one.body if isinstance(one, Record) and one.start == start else None

    def entries(self, since: int = 0) -> Iterator[IndexEntry]:
        """Its entries in the order of archiving, those of the chain's first `since` links left out; what does not read is
        passed over: an audit names it."""
        for one in self.records():
            if isinstance(one, Record) and one.body.get("record") == "archive":
                with contextlib.suppress(KeyError, TypeError):
                    if one.body["seq"] >= since:
                        yield IndexEntry.parse(one.body["entry"])


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreReadError(path, error) from error
