"""The embedded store: a log that is the commit point, one file per step written behind it, and a few documents.

`archive` is acknowledged when its log record is flushed; node files follow and are then marked `filed` in the log. Opening
reads the log: what is acknowledged and not filed is completed (`recovery.redone`); filed and missing is a fault.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from store import layout
from store.audit import audit, check_batch, index_document
from store.cold_store import Audit, Progress, Recovery
from store.errors import (
    BrokenReferenceError,
    IntegrityCheckError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreReadError,
    StoreWriteError,
)
from store.jcs import serialized, sha256_hex
from store.lock import WriterLock
from store.log import LOG_FORMAT, LOG_VERSION, Damage, Log, Record, frame, records
from store.node import ColdNode, IndexEntry, is_step_id, verified

_LOG_FILE = "log.0"
_FILE_BATCH = 64  # node files are flushed and marked together, so that one flush per archive stays one flush
_SMALL_INDEX = 1000  # up to here the exported index is written at each close, beyond it when it has doubled


class FileStore:
    """One session's folder. Any number of processes may open it; writers take turns by a file lock.

    `root` is the workspace's store folder (`.mmu`), `session` any text. With `create=False` a missing folder is an error.
    Raises StoreFormatError (foreign folder, newer version), StoreReadError, StoreWriteError, StoreLockedError; never for
    broken content, which `faults` lists.
    """

    def __init__(self, root: Path, session: str, *, create: bool = True, lock_seconds: float = 10.0) -> None:
        self.session = session
        self.folder = root / layout.session_folder(session)
        self.recovery = Recovery()
        self._index: dict[int, IndexEntry] = {}
        self._unfiled: dict[int, dict[str, Any]] = {}  # acknowledged, not yet marked filed: node documents
        self._unfiled_bytes = 0
        self._written: set[int] = set()  # those of them whose file this process wrote whole
        self._committed = False  # whether some of them were archived through this object
        self._exported = 0
        self._damage: list[StoreError] = []  # stretches of the log that do not read
        self._found: list[StoreError] = []  # node files without entry when it was opened
        self._position = 0  # end of the last whole log record taken in
        self._log = Log(self.folder / _LOG_FILE)
        self._lock = WriterLock(self.folder / "lock", lock_seconds)
        if not self._exists():
            if not create:
                raise StoreFormatError(self.folder, f"no session {session!r} is stored here")
            self._create(root)
        self._open()

    # -- opening

    def _exists(self) -> bool:
        try:
            if not self.folder.exists():
                return False
            if not self.folder.is_dir():
                raise StoreFormatError(self.folder, "this is a file, a session's folder was expected")
            if self._log.path.exists():
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
        layout.private_folder(self.folder / layout.NODE_FOLDER)
        with self._lock.held():
            if self._log.path.exists():
                return
            self._log.append([self._head()], 0)
            for folder in (self.folder, root):
                layout.sync(folder)

    def _head(self) -> dict[str, Any]:
        head = {"record": "head", "format": LOG_FORMAT, "version": LOG_VERSION, "generation": 0}
        return {**head, "session": self.session}

    def _open(self) -> None:
        self.refresh()
        head = frame(self._head())
        if not self._position and head.startswith(self._log.read()[: len(head)]):
            with contextlib.suppress(StoreWriteError), self._lock.held():  # another process is making it, or died at it
                self.refresh()
                if not self._position:
                    self._position = self._log.append([self._head()], 0)
        if not self._position:
            raise StoreFormatError(self._log.path, "not a prompt-mmu log: no whole record in it; nothing was touched")
        torn = self._log.path.stat().st_size - self._position
        missing = tuple(sorted(step for step in self._unfiled if not self._node_path(step).exists()))
        if self._unfiled:
            with contextlib.suppress(StoreWriteError, StoreLockedError):  # a reader without write access reads the log
                self._file_pending()
        self.recovery = Recovery(missing, torn)
        self._found = [OrphanedNodeError(layout.step_of(Path(file).name), file) for file in self._orphans()]

    def _orphans(self) -> list[str]:
        """Node files without entry, judged under the writer lock so that a write in progress is none."""
        strange = sorted(self._files() - {layout.node_file(step) for step in self._index})
        if not strange:
            return []
        with contextlib.suppress(StoreWriteError, StoreLockedError), self._lock.held():
            self.refresh()
        return [file for file in strange if layout.step_of(Path(file).name) not in self._index]

    def _files(self) -> Set[str]:
        try:
            names = [child.name for child in (self.folder / layout.NODE_FOLDER).iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise StoreReadError(self.folder / layout.NODE_FOLDER, error) from error
        return {f"{layout.NODE_FOLDER}/{name}" for name in names if not name.startswith(".")}

    def refresh(self) -> Sequence[IndexEntry]:
        """Read what the log holds beyond what is known. Damaged stretches become faults."""
        try:
            if self._log.path.stat().st_size == self._position:
                return ()
        except OSError as error:
            raise StoreReadError(self._log.path, error) from error
        fresh: list[IndexEntry] = []
        for record in records(self._log.read(self._position), self._position):
            if isinstance(record, Damage):
                what = f"log bytes {record.start} to {record.stop}"
                self._damage.append(IntegrityCheckError(None, what, "whole records", "damaged"))
                continue
            entry = self._take(record)
            if entry is not None:
                fresh.append(entry)
        return fresh

    def _take(self, record: Record) -> IndexEntry | None:
        body, entry = record.body, None
        self._position = record.stop
        try:
            match body["record"]:
                case "head":
                    self._check_head(body)
                case "archive":
                    entry = IndexEntry.parse(body["entry"])
                    self._unfiled[entry.step_id] = body["node"]
                    self._index[entry.step_id] = entry
                case "filed":
                    self._forget_pending(body["steps"])
                case "dropped":
                    self._forget_pending(body["steps"])
                    for step_id in body["steps"]:
                        self._index.pop(step_id, None)
                case "exported":
                    self._exported = body["steps"]
        except (KeyError, TypeError) as error:
            what = f"log record at byte {record.start}"
            self._damage.append(IntegrityCheckError(None, what, "a known record", f"unreadable ({error!r})"))
            return None
        return entry

    def _forget_pending(self, step_ids: Sequence[int]) -> None:
        for step_id in step_ids:
            self._unfiled.pop(step_id, None)

    def _check_head(self, head: dict[str, Any]) -> None:
        if head.get("format") != LOG_FORMAT:
            raise StoreFormatError(self._log.path, f"format {head.get('format')!r} is not ours; nothing was touched")
        if head.get("version") != LOG_VERSION:
            reason = f"version {head.get('version')}, this program reads {LOG_VERSION}; update prompt-mmu"
            raise StoreFormatError(self._log.path, reason)
        if head.get("session") != self.session:
            raise StoreFormatError(self._log.path, f"holds session {head.get('session')!r}, not {self.session!r}")

    # -- writing

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Write steps, all or none, one flush for all. See `ColdStore.archive`."""
        with self._lock.held():
            self.refresh()
            fresh = check_batch(nodes, self.session, self._index, lambda file: (self.folder / file).exists())
            if fresh:
                self._commit(fresh, flush=flush)
        if len(self._unfiled) >= _FILE_BATCH or self._unfiled_bytes > 2**24:
            # What is acknowledged stays so; a disk that is full now only leaves files to be completed later.
            with contextlib.suppress(StoreWriteError, StoreLockedError):
                self._file_pending()
        return [self._index[node.step_id] for node in nodes]

    def adopt(self, node: ColdNode) -> None:
        """Give an orphaned node its entry (explicit repair only). Raises NodeConflictError, StoreWriteError."""
        with self._lock.held():
            self.refresh()
            self._commit(check_batch([node], self.session, self._index, lambda file: False), flush=True)

    def flush(self) -> None:
        """Make durable, and file, what was archived without a flush. Raises StoreWriteError or StoreLockedError."""
        if self._unfiled:
            self._file_pending()

    def _commit(self, nodes: Sequence[ColdNode], *, flush: bool) -> None:
        entries = [IndexEntry.of(node, layout.node_file(node.step_id)) for node in nodes]
        documents = [node.document() for node in nodes]
        bodies = [
            {"record": "archive", "entry": entry.document(), "node": document}
            for entry, document in zip(entries, documents, strict=True)
        ]
        self._append(bodies, flush=flush)
        self._committed = True
        for entry, document in zip(entries, documents, strict=True):
            self._unfiled[entry.step_id] = document
            self._index[entry.step_id] = entry
            self._unfiled_bytes += entry.size
            if not flush:
                continue
            with contextlib.suppress(StoreWriteError):  # acknowledged by now; filing completes it
                self._check_node_folder()
                layout.create(self._node_path(entry.step_id), serialized(document))
                self._written.add(entry.step_id)

    def _append(self, bodies: Sequence[dict[str, Any]], *, flush: bool = True) -> None:
        """Add records to the log. Bytes behind its last whole record, a write that was never acknowledged, are kept first."""
        tail = self._log.read(self._position)
        if tail:
            layout.private_folder(self.folder / layout.QUARANTINE)
            name = f"{_LOG_FILE}.tail-{self._position}.{sha256_hex(tail)[:8]}"
            layout.replace(self.folder / layout.QUARANTINE / name, tail)
        self._position = self._log.append(bodies, self._position, flush=flush)

    def _check_node_folder(self) -> None:
        """Raise StoreWriteError if a link stands in place of the node folder: nothing is written through it."""
        folder = self.folder / layout.NODE_FOLDER
        if folder.is_symlink():
            raise StoreWriteError(folder, OSError(errno.ELOOP, "a link stands in place of the folder"))

    def _file_pending(self) -> None:
        """Complete and flush the files of acknowledged steps, then mark them filed."""
        with self._lock.held():
            self.refresh()
            steps = sorted(self._unfiled)
            self._check_node_folder()
            layout.private_folder(self.folder / layout.NODE_FOLDER)
            if steps:
                layout.sync(self._log.path)  # the log is the commit point: a file never comes before its record
            for step_id in steps:
                path = self._node_path(step_id)
                if step_id not in self._written or not path.exists():  # not written, or half, by a process that died
                    layout.replace(path, serialized(self._unfiled[step_id]), flush=False)
                layout.sync(path)
            if steps:
                layout.sync(self.folder / layout.NODE_FOLDER)
                self._append([{"record": "filed", "steps": steps}], flush=False)
            self._unfiled.clear()
            self._written.clear()
            self._unfiled_bytes, self._committed = 0, False

    def drop(self, step_ids: Sequence[int]) -> None:
        """Take entries out of the index (explicit repair only). Files are not touched."""
        with self._lock.held():
            self.refresh()
            self._append([{"record": "dropped", "steps": list(step_ids)}])
            self._forget_pending(step_ids)
            for step_id in step_ids:
                self._index.pop(step_id, None)

    # -- reading

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        """The index by step id."""
        return MappingProxyType(self._index)

    @property
    def faults(self) -> Sequence[StoreError]:
        """What opening found broken, and what of the log could not be read since."""
        return (*self._damage, *self._found)

    def _node_path(self, step_id: int) -> Path:
        return self.folder / layout.node_file(step_id)

    def get(self, step_id: int) -> ColdNode:
        """Read a step with all its hashes checked. Raises as `ColdStore.get`."""
        if not is_step_id(step_id):
            raise NodeNotFoundError(step_id, self.session)
        entry = self._index.get(step_id)
        file = layout.node_file(step_id)
        if entry is None:
            if self._node_path(step_id).exists():
                raise OrphanedNodeError(step_id, file)
            raise NodeNotFoundError(step_id, self.session)
        if entry.file != file:
            raise PathContainmentError(step_id, file, entry.file)
        if self._node_path(step_id).is_symlink() or (self.folder / layout.NODE_FOLDER).is_symlink():
            raise PathContainmentError(step_id, file, "a link")
        pending = self._unfiled.get(step_id)
        if pending is not None and step_id not in self._written:  # its file is another process's to complete
            return verified(entry, serialized(pending))
        try:
            raw = layout.read_plain(self._node_path(step_id))
        except FileNotFoundError:
            raise BrokenReferenceError(step_id, file) from None
        return verified(entry, raw)

    def logged(self, step_ids: Collection[int]) -> dict[int, bytes]:
        """The canonical node bytes of some steps, of those that the log holds. For repair; reads the whole log once."""
        found: dict[int, bytes] = {}
        for record in records(self._log.read()):
            node = record.body.get("node") if isinstance(record, Record) else None
            if isinstance(node, dict) and node.get("step_id") in step_ids:
                found[node["step_id"]] = serialized(node)
        return found

    def validate(self, progress: Progress | None = None) -> Audit:
        """Check every entry and every file; list all faults, those of the log last."""
        self.refresh()
        result = audit(self, self._orphans(), progress)
        return Audit(result.checked, (*result.faults, *self._damage))

    # -- documents

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

    def sibling(self, session: str) -> FileStore:
        """Another session of the same store folder, made if it is missing. Raises as opening does."""
        return FileStore(self.folder.parent, session)

    def export_index(self) -> bytes:
        """Write `recall_index.json` and return its bytes. Raises StoreWriteError."""
        with self._lock.held():
            self.refresh()
            data = index_document(self.session, self._index.values())
            layout.replace(self.folder / layout.INDEX_FILE, data, flush=False)
            self._append([{"record": "exported", "steps": len(self._index)}], flush=False)
            self._exported = len(self._index)
        return data

    def close(self) -> None:
        """Finish filing; export the index if it has outgrown the last one.

        Raises StoreWriteError or StoreLockedError if steps archived through this object could not be filed. They are
        acknowledged all the same, and the next opening files them.
        """
        if not self._unfiled:
            return
        # Another process's steps are not worth an error: this one may have come to read, from a disk it cannot write.
        refusals = () if self._committed else (StoreWriteError, StoreLockedError)
        with contextlib.suppress(*refusals):
            self._file_pending()
            if len(self._index) <= _SMALL_INDEX or len(self._index) >= 2 * self._exported:
                self.export_index()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
