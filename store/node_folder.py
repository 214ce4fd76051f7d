"""The folder of node files: one canonical file per step, never read or written through a link."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Set
from pathlib import Path

from store import layout
from store.errors import StoreReadError, StoreWriteError


class NodeFolder:
    """`cold_nodes` of a session folder."""

    def __init__(self, session_folder: Path) -> None:
        self._session_folder = session_folder
        self.path = session_folder / layout.NODE_FOLDER

    def file(self, step_id: int) -> Path:
        """Where a step lies."""
        return self._session_folder / layout.node_file(step_id)

    def is_linked(self, step_id: int) -> bool:
        """Whether a link stands in the place of the folder or of a step's file."""
        return self.path.is_symlink() or self.file(step_id).is_symlink()

    def names(self) -> Set[str]:
        """All files in it, relative to the session folder; those that are being written left out. Raises StoreReadError."""
        try:
            names = [child.name for child in self.path.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise StoreReadError(self.path, error) from error
        return {f"{layout.NODE_FOLDER}/{name}" for name in names if not name.startswith(".")}

    def read(self, step_id: int) -> bytes:
        """The bytes of a step's file. Raises FileNotFoundError, IntegrityCheckError (a link), StoreReadError."""
        return layout.read_plain(self.file(step_id))

    def create(self, step_id: int, data: bytes) -> None:
        """Write a new file, not flushed: the log can complete it. Raises StoreWriteError."""
        self._check()
        layout.create(self.file(step_id), data)

    def put(self, step_id: int, data: bytes, *, flush: bool = False) -> None:
        """Put bytes in the place of a step's file, in one piece. Raises StoreWriteError."""
        self._check()
        layout.private_folder(self.path)
        layout.replace(self.file(step_id), data, flush=flush)

    def sync(self, step_id: int) -> None:
        """Flush a step's file. Raises StoreWriteError."""
        layout.sync(self.file(step_id))

    def sync_names(self) -> None:
        """Flush the folder itself. Raises StoreWriteError."""
        layout.sync(self.path)

    def erase(self, step_ids: Iterable[int]) -> None:
        """Delete the files of some steps. Raises StoreWriteError."""
        self._check()
        for step_id in step_ids:
            layout.remove(self.file(step_id))

    def _check(self) -> None:
        if self.path.is_symlink():
            raise StoreWriteError(self.path, OSError(errno.ELOOP, "a link stands in place of the folder"))
