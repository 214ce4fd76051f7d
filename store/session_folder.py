"""A session's folder: how it is made and recognised, its writer lock, and the documents that lie in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from store import layout
from store.chain import Head
from store.errors import StoreFormatError, StoreReadError
from store.forgotten import FORGOTTEN_FILE, Forgotten
from store.jcs import serialized
from store.journal import Journal
from store.lock import WriterLock
from store.node_folder import NodeFolder


class SessionFolder:
    """The folder of `session` in the workspace's store folder `root`. Raises as `FileStore` does."""

    def __init__(
        self, root: Path, session: str, *, create: bool, lock_seconds: float, key: bytes | None, anchor: Path | None
    ) -> None:
        self.session = session
        self._key, self._anchor = key, anchor
        self._said = b""  # the head that was written last
        self.folder = root / layout.session_folder(session)
        self._journal = Journal(self.folder, session)
        self._nodes = NodeFolder(self.folder)
        self._lock = WriterLock(self.folder / "lock", lock_seconds)
        if not self._exists():
            if not create:
                raise StoreFormatError(self.folder, f"no session {session!r} is stored here")
            self._create(root)

    def _exists(self) -> bool:
        try:
            if not self.folder.exists():
                return False
            if not self.folder.is_dir():
                raise StoreFormatError(self.folder, "this is a file, a session's folder was expected")
            if self._journal.generations():
                return True
            if any(self._foreign(child) for child in self.folder.iterdir()):
                raise StoreFormatError(self.folder, "not a prompt-mmu session: its log is missing; nothing was touched")
        except OSError as error:
            raise StoreReadError(self.folder, error) from error
        return False

    def _foreign(self, child: Path) -> bool:
        """Whether a folder without a log holds this: more than what another process puts there before its log."""
        if child.name == layout.NODE_FOLDER:
            return any(child.iterdir())
        return child.name != "lock" and not child.name.startswith(".")

    def _create(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise StoreFormatError(root, "this is a file, a store folder was expected")
        fresh = not root.exists()
        layout.private_folder(root)
        if fresh:
            layout.replace(root / ".gitignore", b"*\n", flush=False)
        layout.private_folder(self._nodes.path)
        with self._lock.held():
            if self._journal.generations():
                return
            self._journal.append([])
            self._say_head(flush=True)
            for folder in (self.folder, root):
                layout.sync(folder)

    @property
    def derived(self) -> Path:
        """A folder for files that can be made again at any time."""
        return self.folder / layout.DERIVED

    @property
    def forgotten(self) -> Forgotten:
        """What was forgotten here. Raises StoreReadError, IntegrityCheckError."""
        return Forgotten.parse(self.read_document(FORGOTTEN_FILE) or b"")

    def _say_head(self, *, flush: bool = False) -> None:
        """Write down where the chain ends, and tell the anchor. All of the chain is flushed.

        A head that the chain does not go through is left as it is: it tells that history was cut off or changed.
        """
        head, path = self._journal.state.head, self.folder / layout.HEAD_FILE
        before = layout.read_plain(path) if path.exists() else b""
        if before and before != self._said:
            with contextlib.suppress(ValueError):
                said = Head.from_bytes(before, self.session, self._key)
                if self._journal.link_at(said.count) != said.link:
                    return
        self.write_head(flush=flush)
        if self._anchor is not None:
            layout.append_line(self._anchor, lambda last: serialized({"session": self.session, "head": str(head)}))

    def write_head(self, *, flush: bool = True) -> None:
        """Write down where the chain ends, whatever was written there (explicit repair). Raises StoreWriteError."""
        self._said = self._journal.state.head.to_bytes(self.session, self._key)
        layout.overwrite(self.folder / layout.HEAD_FILE, self._said, flush=flush)

    def _say_first_head(self) -> None:
        """Write the head of an empty chain, if whoever made the session died before it was whole."""
        path, whole = self.folder / layout.HEAD_FILE, self._journal.state.head.to_bytes(self.session, self._key)
        found = layout.read_plain(path) if path.exists() else b""
        if found != whole and whole.startswith(found):
            layout.overwrite(path, whole, flush=True)

    def read_document(self, name: str) -> bytes | None:
        """A document of the session, None if there is none. Raises StoreReadError, IntegrityCheckError (a link)."""
        try:
            return layout.read_plain(self.folder / layout.document_name(name))
        except FileNotFoundError:
            return None

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Replace a document in one piece; with `flush` it is durable on return. Raises StoreWriteError."""
        layout.replace(self.folder / layout.document_name(name), data, flush=flush)

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        """Append a line, see `ColdStore.append_document`. Raises StoreWriteError, StoreLockedError."""
        path = self.folder / layout.document_name(name)
        with self._lock.held():
            layout.append_line(path, line_after)

    def change_document(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace a document by what is made of it. Raises StoreWriteError, StoreLockedError."""
        with self._lock.held():
            before = self.read_document(name) or b""
            after = change(before)
            if after != before:
                self.write_document(name, after)
