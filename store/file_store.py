"""The embedded store: a log that is the commit point, one file per step written behind it, and a few documents.

`archive` is acknowledged when its log record is flushed; node files follow and are then marked `filed`. Opening reads the
newest generation of the log: what is acknowledged and not filed is completed (`recovery`); filed and missing is a fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from store import layout
from store.audit import check_batch, index_document
from store.chain import SALT_BYTES
from store.chance import Chance, system_chance
from store.cold_store import Audit, Progress, Recovery, Version
from store.errors import (
    BrokenReferenceError,
    IntegrityCheckError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreWriteError,
)
from store.folder_audit import NO_ANCHOR, WrittenHeads, export_faults, forgotten_faults, walk
from store.forgotten import FORGOTTEN_FILE, Forgotten
from store.index import Index
from store.jcs import serialized, sha256_hex
from store.log import Record, frame
from store.node import ColdNode, IndexEntry, is_step_id, verified
from store.session_folder import SessionFolder

_FILE_BATCH = 64  # node files are flushed and marked together, so that one flush per archive stays one flush
_SMALL_INDEX = 1000  # up to here the exported index is written at each close, beyond it when it has doubled
SEAL_BYTES = 4 * 2**20  # a generation of the log is sealed when it is longer


class FileStore(SessionFolder):
    """One session's folder. Any number of processes may open it; writers take turns by a file lock.

    `root` is the workspace's store folder (`.mmu`), `session` any text. With `create=False` a missing folder is an error.
    `chance` gives the salts of the chain; with `key` its head cannot be made up by who has no key; `anchor` is a file outside
    the folder that is told each head. Raises StoreFormatError (foreign folder, newer version), StoreReadError,
    StoreWriteError, StoreLockedError; never for broken content, which `faults` lists.
    """

    def __init__(
        self,
        root: Path,
        session: str,
        *,
        create: bool = True,
        lock_seconds: float = 10.0,
        chance: Chance = system_chance,
        key: bytes | None = None,
        anchor: Path | None = None,
        seal_bytes: int = SEAL_BYTES,
    ) -> None:
        super().__init__(root, session, create=create, lock_seconds=lock_seconds, key=key, anchor=anchor)
        self.recovery = Recovery()
        self._chance, self._seal_bytes = chance, seal_bytes
        self._unfiled: dict[int, dict[str, Any]] = {}  # acknowledged, not yet marked filed: node documents
        self._written: set[int] = set()  # those of them whose file this process wrote whole
        self._committed = False  # whether some of them were archived through this object
        self._found: list[StoreError] | None = None  # node files without entry, looked for when somebody asks
        self._erasing: Sequence[Mapping[str, Any]] = ()  # what an erase record says that is not done yet
        self._index = Index(self._journal, 0)
        self._open()

    # -- opening

    def _open(self) -> None:
        self._reload()
        if not self._journal.is_begun and self._journal.begins_with(frame(self._journal.head_record())):
            with contextlib.suppress(StoreWriteError), self._lock.held():  # another process is making it, or died at it
                self._reload()
                if not self._journal.is_begun:
                    self._journal.append([])
        if not self._journal.is_begun:
            raise StoreFormatError(
                self._journal.path, "not a prompt-mmu log: no whole record in it; nothing was touched"
            )
        torn = self._journal.torn()
        missing = tuple(sorted(step for step in self._unfiled if not self._nodes.file(step).exists()))
        if self._unfiled:
            with contextlib.suppress(StoreWriteError, StoreLockedError):  # a reader without write access reads the log
                self._file_pending()
        if self._erasing:
            with contextlib.suppress(StoreWriteError, StoreLockedError), self._lock.held():
                self.refresh()  # whoever was at it may be done by now
                if self._erasing:
                    self._finish_erasing()
        if not self._journal.state.head.count:
            with contextlib.suppress(StoreWriteError, StoreLockedError), self._lock.held():
                self._say_first_head()
        self.recovery = Recovery(missing, torn)

    def _reload(self) -> None:
        """Read the newest generation of the log from its begin."""
        self._unfiled.clear()
        self._erasing = ()
        found = self._journal.begin()
        self._index = Index(self._journal, self._journal.state.steps)
        for record in found:
            self._take(record)

    def refresh(self) -> Sequence[IndexEntry]:
        """Read what the log holds beyond what is known. Damaged stretches become faults."""
        if self._journal.moved():
            known = self._journal.state.head.count
            self._reload()
            return self.recent(known)
        taken = [self._take(record) for record in self._journal.fresh()]
        return [entry for entry in taken if entry is not None]

    def _take(self, record: Record) -> IndexEntry | None:
        body = record.body
        try:
            match body["record"]:
                case "archive":
                    entry = IndexEntry.parse(body["entry"])
                    self._index.put(entry, body["seq"], again=bool(body.get("again")))
                    if "node" in body:
                        self._unfiled[entry.step_id] = body["node"]
                        self._written.discard(entry.step_id)
                    return entry
                case "filed":
                    for step_id in body["steps"]:
                        self._unfiled.pop(step_id, None)
                case "erase":
                    self._erasing = body["steps"]
                    self._index.lose(body["live"])
                case "erased":
                    self._erasing = ()
        except (KeyError, TypeError) as error:
            self._journal.spoiled(record, error)
        return None

    def _orphans(self) -> list[StoreError]:
        """Node files without entry, judged under the writer lock so that a write in progress is none."""
        strange = sorted(self._nodes.names() - {layout.node_file(step) for step in self._index})
        if strange:
            with contextlib.suppress(StoreWriteError, StoreLockedError), self._lock.held():
                self.refresh()
        steps = {file: layout.step_of(Path(file).name) for file in strange}
        return [OrphanedNodeError(step_id, file) for file, step_id in steps.items() if step_id not in self._index]

    # -- writing

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Write steps, all or none, one flush for all. See `ColdStore.archive`."""
        with self._lock.held():
            self.refresh()
            fresh = check_batch(nodes, self.session, self._index, lambda file: (self.folder / file).exists())
            if fresh:
                self._commit(fresh, flush=flush)
        if fresh and (len(self._unfiled) >= _FILE_BATCH or self._journal.state.position > self._seal_bytes):
            with contextlib.suppress(StoreWriteError, StoreLockedError):  # files can be completed later
                self._file_pending()
        return [self._index[node.step_id] for node in nodes]

    def adopt(self, node: ColdNode) -> None:
        """Give an orphaned node its entry (explicit repair only). Raises NodeConflictError, StoreWriteError."""
        with self._lock.held():
            self.refresh()
            self._commit(check_batch([node], self.session, self._index, lambda file: False), flush=True)

    def reindex(self, nodes: Sequence[ColdNode]) -> None:
        """Give steps a new projection (their payload is the same); see `ColdStore.reindex`."""
        with self._lock.held():
            self.refresh()
            for node in nodes:
                known = self.get(node.step_id)
                if known.payload != node.payload:
                    raise IntegrityCheckError(node.step_id, "payload_sha256", known.payload_sha256, node.payload_sha256)
            self._commit(nodes, flush=True, again=True)
        self._file_pending()

    def flush(self) -> None:
        """Make durable, and file, what was archived without a flush. Raises StoreWriteError or StoreLockedError."""
        if self._unfiled:
            self._file_pending()

    def _commit(self, nodes: Sequence[ColdNode], *, flush: bool, again: bool = False) -> None:
        entries = [IndexEntry.of(node, layout.node_file(node.step_id)) for node in nodes]
        documents = [node.document() for node in nodes]
        bodies: list[dict[str, Any]] = [
            {"record": "archive", "entry": entry.document(), "salt": self._chance(SALT_BYTES).hex(), "node": document}
            for entry, document in zip(entries, documents, strict=True)
        ]
        for body in bodies if again else ():
            body["again"] = True
        first = self._journal.state.head.count
        self._journal.append(self._journal.chained(bodies), flush=flush)
        self._committed = True
        for place, (entry, document) in enumerate(zip(entries, documents, strict=True), first):
            self._unfiled[entry.step_id] = document
            self._written.discard(entry.step_id)  # its file is that of an older entry
            self._index.put(entry, place, again=again)
            if flush and not again:
                with contextlib.suppress(StoreWriteError):  # acknowledged by now; filing completes it
                    self._nodes.create(entry.step_id, serialized(document))
                    self._written.add(entry.step_id)
        if flush:
            self._say_head()

    def _file_pending(self) -> None:
        """Complete and flush the files of acknowledged steps, mark them filed, and seal a log that has grown."""
        with self._lock.held():
            self.refresh()
            steps = sorted(self._unfiled)
            if steps:
                layout.sync(self._journal.path)  # the log is the commit point: a file never comes before its record
                for step_id in steps:
                    # Not written, or half, by a process that died.
                    if step_id not in self._written or not self._nodes.file(step_id).exists():
                        self._nodes.put(step_id, serialized(self._unfiled[step_id]))
                    self._nodes.sync(step_id)
                self._nodes.sync_names()
                self._journal.append([{"record": "filed", "steps": steps}], flush=False)
                self._say_head()
            self._unfiled.clear()
            self._written.clear()
            self._committed = False
            if self._journal.state.position > self._seal_bytes:
                self._seal()

    def _seal(self) -> None:
        self._journal.seal(len(self._index))
        self._reload()

    # -- forgetting

    def drop(self, step_ids: Collection[int]) -> None:
        """Take entries out of the index (explicit repair only). Files are not touched."""
        self._erase([{"step": step_id, "why": "dropped"} for step_id in sorted(step_ids)])

    def forget(self, step_ids: Collection[int], *, at: str) -> Sequence[int]:
        """Erase steps from every file of the session; see `ColdStore.forget`."""
        with self._lock.held():
            self.refresh()
            entries = [self._index[step_id] for step_id in sorted(step_ids) if step_id in self._index]
            salt = self.forgotten.salt or self._chance(SALT_BYTES).hex()
            self._erase([Forgotten.record(entry.step_id, entry.match_key, salt, at) for entry in entries])
        return [entry.step_id for entry in entries]

    def _erase(self, erased: Sequence[dict[str, Any]]) -> None:
        with self._lock.held():
            self._file_pending()
            self._seal()
            live = len([one for one in erased if one["step"] in self._index])
            if live:
                self._journal.append([{"record": "erase", "steps": erased, "live": live}])
                self._reload()
                self._finish_erasing()

    def _finish_erasing(self) -> None:
        """Do what the last erase record says; again, if a process died at it."""
        steps = {one["step"]: one for one in self._erasing}
        for generation in self._journal.sealed():
            if any(generation.place(step_id) is not None for step_id in steps):
                self._journal.rewrite(generation, {step_id: one["why"] for step_id, one in steps.items()})
        gone = [one for one in self._erasing if one["why"] == "forgotten"]
        if gone:
            self._nodes.erase([one["step"] for one in gone])
            for name in (layout.INDEX_FILE, layout.QUARANTINE, layout.DERIVED):
                layout.remove(self.folder / name)
            self.write_document(FORGOTTEN_FILE, self.forgotten.having(gone).to_bytes())
        self._journal.append([{"record": "erased"}])
        self._say_head()
        self._reload()

    # -- reading

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        """The index by step id."""
        return self._index

    @property
    def version(self) -> Version:
        """Which history this is; see `ColdStore.version`."""
        state = self._journal.state
        return Version(state.epoch, state.head.count, state.head.link)

    def recent(self, count: int) -> Sequence[IndexEntry]:
        """The entries archived after the first `count`, in order; see `ColdStore.recent`."""
        return self._index.recent(count)

    def link_at(self, count: int) -> str | None:
        """The chain's link after the first `count` entries, None if there are not so many."""
        return self._journal.link_at(count)

    @property
    def faults(self) -> Sequence[StoreError]:
        """What is broken as far as opening and reading saw it; node files without entry are looked for when first asked."""
        if self._found is None:
            self._found = self._orphans()
        return (*self._journal.damage, *self._found)

    def get(self, step_id: int) -> ColdNode:
        """Read a step with all its hashes checked. Raises as `ColdStore.get`."""
        try:
            return self._get(step_id)
        except (BrokenReferenceError, OrphanedNodeError):  # or archived, or forgotten, by another process since
            self.refresh()
            self._index.reconsider(step_id)
            return self._get(step_id)

    def _get(self, step_id: int) -> ColdNode:
        if not is_step_id(step_id):
            raise NodeNotFoundError(step_id, self.session)
        entry, file = self._index.get(step_id), layout.node_file(step_id)
        if entry is None:
            if self._nodes.file(step_id).exists() and step_id not in [one["step"] for one in self._erasing]:
                raise OrphanedNodeError(step_id, file)
            raise NodeNotFoundError(step_id, self.session)
        if entry.file != file:
            raise PathContainmentError(step_id, file, entry.file)
        return verified(entry, self._raw(step_id), self.session)

    def _raw(self, step_id: int) -> bytes:
        """The bytes of a step's node. Raises BrokenReferenceError, PathContainmentError, StoreReadError."""
        if self._nodes.is_linked(step_id):
            raise PathContainmentError(step_id, layout.node_file(step_id), "a link")
        pending = self._unfiled.get(step_id)
        if pending is not None and step_id not in self._written:  # its file is another process's to complete
            return serialized(pending)
        try:
            return self._nodes.read(step_id)
        except FileNotFoundError:
            raise BrokenReferenceError(step_id, layout.node_file(step_id)) from None

    def logged(self, step_ids: Collection[int]) -> dict[int, bytes]:
        """The canonical node bytes of some steps, of those that the log holds. For repair; reads the open generation."""
        found: dict[int, bytes] = {}
        for record in self._journal.open_records():
            node = record.body.get("node")
            if isinstance(node, dict) and node.get("step_id") in step_ids:
                found[node["step_id"]] = serialized(node)
        return found

    def validate(self, progress: Progress | None = None, *, since: int = 0, anchor: Path | None = None) -> Audit:
        """Check the chain, every entry and every file; list all faults. See `ColdStore.validate`."""
        with contextlib.suppress(StoreWriteError, StoreLockedError), self._lock.held():
            self.refresh()
        heads = WrittenHeads.read(self.folder, self.session, self._key, anchor or self._anchor)
        chain, nodes = walk(self._journal, self._nodes, self.get, heads, since=since, progress=progress)
        derived = [
            *export_faults(self.folder, self._journal.state.exported[1:]),
            *forgotten_faults(lambda: self.forgotten, chain.forgotten),
        ]
        return Audit(
            checked=len(self._index),
            faults=(*nodes, *self._orphans(), *chain.faults, *heads.faults, *derived),
            head=str(chain.head),
            forgotten=tuple(chain.forgotten),
            notes=() if heads.anchored else (NO_ANCHOR,),
        )

    def sibling(self, session: str) -> FileStore:
        """Another session of the same store folder, made if it is missing. Raises as opening does."""
        return FileStore(self.folder.parent, session, chance=self._chance, key=self._key, anchor=self._anchor)

    def export_index(self) -> bytes:
        """Write `recall_index.json` and return its bytes. Raises StoreWriteError."""
        with self._lock.held():
            self.refresh()
            data = index_document(self.session, self._index.values())
            record = {"record": "exported", "steps": len(self._index), "sha256": sha256_hex(data)}
            # Until the file follows its record, the one before is right, too.
            self._journal.append([{**record, "before": self._journal.state.exported[1]}])
            layout.replace(self.folder / layout.INDEX_FILE, data)
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
            if len(self._index) <= _SMALL_INDEX or len(self._index) >= 2 * self._journal.state.exported[0]:
                self.export_index()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
