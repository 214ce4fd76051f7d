"""A store without a disk, for tests and for sessions that need not outlive their process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from store.audit import audit_nodes, check_batch, index_document
from store.chain import Head, genesis, link
from store.cold_store import Audit, Progress, Recovery, Version
from store.errors import (
    BrokenReferenceError,
    IntegrityCheckError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    StoreError,
)
from store.forgotten import Forgotten
from store.layout import INDEX_FILE, document_name, node_file, step_of
from store.node import ColdNode, IndexEntry, is_step_id, verified


class MemoryStore:
    """Keeps the same bytes as the file store would, in `files` (by relative path)."""

    def __init__(self, session: str = "memory") -> None:
        self.session = session
        self.files: dict[str, bytes] = {}
        self.index: dict[int, IndexEntry] = {}
        self.recovery = Recovery()
        self.forgotten = Forgotten()
        self.derived: Path | None = None
        self._epoch = 0
        self._links = [genesis(session)]
        self._order: list[int] = []
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
        for node in check_batch(nodes, self.session, self.index, lambda file: file in self.files):
            self._keep(node)
        return [self.index[node.step_id] for node in nodes]

    def _keep(self, node: ColdNode) -> None:
        entry = IndexEntry.of(node, node_file(node.step_id))
        self.files[entry.file] = node.to_bytes()
        self.index[entry.step_id] = entry
        self._links.append(link(self._links[-1], entry.artifact_sha256))
        self._order.append(entry.step_id)

    def reindex(self, nodes: Sequence[ColdNode]) -> None:
        """Give steps a new projection."""
        for node in nodes:
            known = self.get(node.step_id)
            if known.payload != node.payload:
                raise IntegrityCheckError(node.step_id, "payload_sha256", known.payload_sha256, node.payload_sha256)
        for node in nodes:
            self._keep(node)
        self._epoch += 1

    def forget(self, step_ids: Collection[int], *, at: str) -> Sequence[int]:
        """Take steps out of everything that is kept here."""
        gone = [self.index.pop(step_id) for step_id in sorted(step_ids) if step_id in self.index]
        for entry in gone:
            self.files.pop(entry.file, None)
        self.files.pop(INDEX_FILE, None)
        if gone:
            self._epoch += 1
            rows = [Forgotten.record(entry.step_id, entry.match_key, self.session, at) for entry in gone]
            self.forgotten = self.forgotten.having(rows)
        return [entry.step_id for entry in gone]

    @property
    def version(self) -> Version:
        """Which history this is."""
        return Version(self._epoch, len(self._order), self._links[-1])

    def link_at(self, count: int) -> str | None:
        """The link after the first `count` entries."""
        return self._links[count] if count < len(self._links) else None

    def recent(self, count: int) -> Sequence[IndexEntry]:
        """The entries after the first `count`."""
        return [self.index[step_id] for step_id in self._order[count:] if step_id in self.index]

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
        return verified(entry, self.files[file], self.session)

    def validate(self, progress: Progress | None = None, *, since: int = 0, anchor: Path | None = None) -> Audit:
        """Check every entry and every file; list all faults. There is no folder that somebody could put back."""
        files = [file for file in self.files if step_of(file.rpartition("/")[2]) is not None]
        steps = set(self.index) - set(self._order[:since])
        faults = audit_nodes(
            steps, self.get, [f for f in files if step_of(f.rpartition("/")[2]) not in self.index], progress
        )
        head = Head(len(self._order), self._links[-1])
        return Audit(len(self.index), faults, str(head), tuple(self.forgotten.steps))

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

    def change_document(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace a document by what is made of it."""
        before = self.files.get(document_name(name), b"")
        after = change(before)
        if after != before:
            self.files[name] = after

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
