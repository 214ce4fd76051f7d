"""The session's log: framed records, appended and flushed. A record is acknowledged when its flush returned.

A frame is one line: eight hex digits of the CRC-32 of the body, a blank, the body's length in bytes, a blank, the body (a
canonical JSON object), a line feed. The body has no raw line feed, so a reader finds its way again after a damaged line, and
a record glued to damaged bytes (NULs after a power cut, a torn write) is found by its head.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from store.errors import StoreReadError, StoreWriteError
from store.jcs import serialized

LOG_FORMAT, LOG_VERSION = "mmu-log", 1
_FRAME = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,12}) ")


@dataclass(frozen=True, slots=True)
class Record:
    """A record that reads back whole, and where it begins and ends (bytes)."""

    start: int
    stop: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes between two whole records that are none."""

    start: int
    stop: int


def frame(body: dict[str, Any]) -> bytes:
    """One record as it stands in the log. The body is of the canonical domain."""
    raw = serialized(body)
    return b"%08x %d %s\n" % (zlib.crc32(raw), len(raw), raw)


def _unframe(line: bytes) -> tuple[int, dict[str, Any]] | None:
    """The record that a line ends with, and where in the line it begins: at 0, unless damaged bytes stand before it."""
    at = 0
    while (head := _FRAME.search(line, at)) is not None:
        at = head.start() + 1
        if len(line) - head.end() != int(head[2]):
            continue
        raw = line[head.end() :]
        with contextlib.suppress(orjson.JSONDecodeError):
            if zlib.crc32(raw) == int(head[1], 16) and isinstance(body := orjson.loads(raw), dict):
                return head.start(), body
    return None


def records(data: bytes, offset: int = 0) -> Iterator[Record | Damage]:
    """The records of some log bytes, in order, damaged stretches in between named.

    Bytes after the last whole record are not reported: they are a write that was never acknowledged. `offset` is added to
    the positions.
    """
    position, good = 0, 0
    while (end := data.find(b"\n", position)) >= 0:
        found = _unframe(data[position:end])
        if found is not None:
            start = position + found[0]
            if good < start:
                yield Damage(offset + good, offset + start)
            good = end + 1
            yield Record(offset + start, offset + good, found[1])
        position = end + 1


class Log:
    """The append end of a log file. Use it under the writer lock only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, start: int = 0) -> bytes:
        """All bytes from `start` on. Raises StoreReadError."""
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read()
        except OSError as error:
            raise StoreReadError(self.path, error) from error

    def append(self, frames: Sequence[bytes], at: int, *, flush: bool = True) -> None:
        """Write framed records at byte `at` (the end of the last whole one), and flush once.

        Raises StoreWriteError if the system refuses; the file is then as long as before.
        """
        data = b"".join(frames)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreWriteError(self.path, error) from error
        try:
            if os.fstat(descriptor).st_size > at:
                os.ftruncate(descriptor, at)  # a torn tail of a writer that died is not glued to
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], at + written)
            if flush:
                os.fsync(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):  # a disk this broken still gets its error told
                os.ftruncate(descriptor, at)
            raise StoreWriteError(self.path, error) from error
        finally:
            os.close(descriptor)
