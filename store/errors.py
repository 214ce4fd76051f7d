"""The one tree of errors that the store raises. Each says what is wrong, with which step or file, and what to do."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Anything the store refuses to do, or found broken."""

    step_id: int | None = None


class NodeNotFoundError(StoreError):
    """No step of that id was ever archived here (CONF-10)."""

    def __init__(self, step_id: int, session: str) -> None:
        self.step_id, self.session = step_id, session
        super().__init__(f"step {step_id}: not archived in session {session!r}")


def _short(text: str) -> str:
    """A hash by its first digits; other words as they are, up to a line."""
    return text[:16] if len(text) == 64 and text.isalnum() else text[:120]


class IntegrityCheckError(StoreError):
    """Bytes no longer hash to what was written (CONF-09). The node is never hydrated."""

    def __init__(self, step_id: int | None, what: str, stored: str, found: str) -> None:
        self.step_id, self.what, self.stored, self.found = step_id, what, stored, found
        where = "store" if step_id is None else f"step {step_id}"
        super().__init__(f"{where}: {what} is {_short(found) or 'missing'}, expected {_short(stored)}")


class PathContainmentError(IntegrityCheckError):
    """An entry names a file that is not the one derived from its step id, or a link stands in its place (CONF-12)."""

    def __init__(self, step_id: int, expected: str, found: str) -> None:
        super().__init__(step_id, "file", expected, found)
        self.args = (f"step {step_id}: the file is {found!r}, only {expected!r} inside the session folder is read",)


class OrphanedNodeError(StoreError):
    """A node file that no index entry refers to (CONF-12). It is neither read nor overwritten."""

    def __init__(self, step_id: int | None, file: str) -> None:
        self.step_id, self.file = step_id, file
        super().__init__(f"{file}: a node without an index entry; `mmu repair` adopts or quarantines it")


class BrokenReferenceError(StoreError):
    """An index entry whose node file is gone (CONF-12)."""

    def __init__(self, step_id: int, file: str) -> None:
        self.step_id, self.file = step_id, file
        super().__init__(f"step {step_id}: {file} is missing; `mmu repair` restores it if the log still holds it")


class NodeConflictError(StoreError):
    """The step id is taken by another payload. Nothing was written."""

    def __init__(self, step_id: int, stored: str, given: str) -> None:
        self.step_id, self.stored, self.given = step_id, stored, given
        super().__init__(
            f"step {step_id}: holds payload {stored[:12]}, refused {given[:12]}; a step is never overwritten"
        )


class InvalidNodeError(StoreError):
    """A value that a node cannot hold. Nothing was written."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        super().__init__(f"{field}: {reason}")


class StoreFormatError(StoreError):
    """The folder is not a store, or one of a newer version. Nothing was touched."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}")


class StoreWriteError(StoreError):
    """The system refused a write (disk full, permission). What was acknowledged before is unharmed."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path, self.errno = path, error.errno
        super().__init__(f"{path}: {error.strerror or error}; nothing of this write was kept")


class StoreReadError(StoreError):
    """The system refused a read (permission, not a folder)."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path, self.errno = path, error.errno
        super().__init__(f"{path}: {error.strerror or error}")


class StoreLockedError(StoreError):
    """Another process held the writer lock for longer than the time-out."""

    def __init__(self, path: Path, seconds: float, owner: str) -> None:
        self.path, self.owner = path, owner
        super().__init__(f"{path}: {owner} has been writing for more than {seconds:g} s; try again, or end it")
