"""A store without a disk, for tests and for sessions that need not outlive their process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

from store.audit import audit, check_batch, index_document
from store.cold_store import Audit, Progress, Recovery
from store.errors import BrokenReferenceError, NodeNotFoundError, OrphanedNodeError, PathContainmentError, StoreError
from store.layout import INDEX_FILE, document_name, node_file, step_of
from store.node import ColdNode, IndexEntry, is_step_id, verified


class MemoryStore:
    """Keeps the same bytes as the file store would, in `files` (by relative path)."""

    def __init__(self, session: str = "memory") -> None:
        self.session = session
        self.files: dict[str, bytes] = {}
        self.index: dict[int, IndexEntry] = {}
        self.recovery = Recovery()
        self._siblings: dict[str, MemoryStore] = {}
        self.faults: Sequence[StoreError] = ()

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        """The index by step id."""
        return MappingProxyType(self.index)

    def refresh(self) -> Sequence[IndexEntry]:
        """Nobody else writes here."""
        return ()

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Keep steps, all or none. Raises NodeConflictError or OrphanedNodeError."""
        fresh = check_batch(nodes, self.session, self.index, lambda file: file in self.files)
        for node in fresh:
            self.files[node_file(node.step_id)] = node.to_bytes()
            self.index[node.step_id] = IndexEntry.of(node, node_file(node.step_id))
        return [self.index[node.step_id] for node in nodes]

    def flush(self) -> None:
        """Nothing is pending here."""

    def get(self, step_id: int) -> ColdNode:
        """Read a step with all its hashes checked. Raises as `ColdStore.get`."""
        if not is_step_id(step_id):
            raise NodeNotFoundError(step_id, self.session)
        entry, file = self.index.get(step_id), node_file(step_id)
        if entry is None:
            if file in self.files:
                raise OrphanedNodeError(step_id, file)
            raise NodeNotFoundError(step_id, self.session)
        if entry.file != file:
            raise PathContainmentError(step_id, file, entry.file)
        if file not in self.files:
            raise BrokenReferenceError(step_id, file)
        return verified(entry, self.files[file])

    def validate(self, progress: Progress | None = None) -> Audit:
        """Check every entry and every file; list all faults."""
        nodes = [file for file in self.files if step_of(file.rpartition("/")[2]) is not None]
        return audit(self, nodes, progress)

    def read_document(self, name: str) -> bytes | None:
        """A document, None if there is none."""
        return self.files.get(document_name(name))

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Replace a document."""
        self.files[document_name(name)] = data

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        """Append a line."""
        before = self.files.get(document_name(name), b"")
        if before and not before.endswith(b"\n"):
            before += b"\n"
        last = before[:-1].rpartition(b"\n")[2]
        self.files[name] = before + line_after(last) + b"\n"

    def sibling(self, session: str) -> MemoryStore:
        """Another session beside this one."""
        return self._siblings.setdefault(session, MemoryStore(session))

    def export_index(self) -> bytes:
        """The page table in human-readable form."""
        self.files[INDEX_FILE] = index_document(self.session, self.index.values())
        return self.files[INDEX_FILE]

    def close(self) -> None:
        """Nothing is pending here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
