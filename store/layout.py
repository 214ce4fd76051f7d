"""Where things lie: the folder of a session, the file of a step, and how a file is replaced in one piece."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from store.errors import IntegrityCheckError, StoreReadError, StoreWriteError
from store.jcs import sha256_hex

NODE_FOLDER, QUARANTINE, INDEX_FILE = "cold_nodes", "quarantine", "recall_index.json"
HEAD_FILE, DERIVED = "HEAD", "derived"
_SLUG = re.compile(r"[^a-z0-9]+")
_NODE_NAME = re.compile(r"step_([0-9]{6,9})\.json")
_DOCUMENT = re.compile(r"[a-z][a-z0-9_]{0,40}\.jsonl?")


def session_folder(session: str) -> str:
    """A folder name for any session id: a readable slug and 12 hex digits of the id's hash (ids come from headers)."""
    slug = _SLUG.sub("-", session.lower())[:40].strip("-") or "session"
    return f"{slug}-{sha256_hex(session.encode('utf-8', 'surrogatepass'))[:12]}"


def node_file(step_id: int) -> str:
    """The one path, relative to the session folder, where a step may lie."""
    return f"{NODE_FOLDER}/step_{step_id:06d}.json"


def step_of(name: str) -> int | None:
    """The step id in a node's file name, or None if the name is not one that `node_file` gives."""
    found = _NODE_NAME.fullmatch(name)
    return int(found[1]) if found and node_file(int(found[1])).endswith("/" + name) else None


def document_name(name: str) -> str:
    """The name of a small document of the session, checked. Raises ValueError for a name with a path in it."""
    if not _DOCUMENT.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a session document")
    return name


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can read (0700), with its parents. Raises StoreWriteError."""
    try:
        for folder in (*reversed(path.parents), path):  # `parents=True` would give the parents the default mode
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreWriteError(path, error) from error


def read_plain(path: Path) -> bytes:
    """The bytes of a regular file, never through a link. Raises FileNotFoundError, IntegrityCheckError or StoreReadError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise IntegrityCheckError(None, str(path), "a plain file", "a link") from error
        raise StoreReadError(path, error) from error


def append_line(path: Path, line_after: Callable[[bytes], bytes]) -> None:
    """Append the line that `line_after` makes of the last one, not flushed; a torn last line is ended first.

    Raises StoreWriteError; the file then stands as it was.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreWriteError(path, error) from error
    size = os.fstat(descriptor).st_size
    try:
        last, torn = last_line(descriptor, size)
        data = (b"\n" if torn else b"") + line_after(last) + b"\n"
        if os.pwrite(descriptor, data, size) != len(data):
            raise OSError(errno.ENOSPC, "the disk took a part of the line only")
    except OSError as error:
        with contextlib.suppress(OSError):  # the next line begins behind a torn one anyway
            os.ftruncate(descriptor, size)
        raise StoreWriteError(path, error) from error
    finally:
        os.close(descriptor)


def last_line(descriptor: int, size: int) -> tuple[bytes, bool]:
    """The last line of a file of `size` bytes, without its line feed, and whether it lacks one (a torn write)."""
    tail, start = b"", size
    while start > 0 and b"\n" not in tail[:-1]:
        start = max(0, start - 8_192)
        tail = os.pread(descriptor, size - start, start)
    torn = bool(tail) and not tail.endswith(b"\n")
    return tail.removesuffix(b"\n").rpartition(b"\n")[2], torn


def sync(path: Path) -> None:
    """Flush a file or folder to the disk. Raises StoreWriteError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreWriteError(path, error) from error


def create(path: Path, data: bytes) -> None:
    """Write a new file, not flushed and not in one piece: for what the log can complete. Raises StoreWriteError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise StoreWriteError(path, error) from error


def overwrite(path: Path, data: bytes, *, flush: bool) -> None:
    """Write a small file over itself, always as long as before: after a power cut it holds the old bytes or the new ones.

    Raises StoreWriteError.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, data, 0)
            if flush:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreWriteError(path, error) from error


def replace(path: Path, data: bytes, *, flush: bool = True) -> None:
    """Put `data` in the place of a file in one piece: readers see the old bytes or the new ones (mode 0600).

    Without `flush` a crash may leave no file, never a part of one that a living process wrote. Raises StoreWriteError; the
    old file then stands as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        if not flush:
            path.unlink(missing_ok=True)  # replacing a file would make some file systems flush it
        temporary.replace(path)
        if flush:
            sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # what refused the write may refuse this too
            temporary.unlink()
        raise StoreWriteError(path, error) from error


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it, if it is there. Raises StoreWriteError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if path.parent.exists():
            sync(path.parent)
    except OSError as error:
        raise StoreWriteError(path, error) from error
