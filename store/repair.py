"""Explicit repair of a file store: first a plan that only reads, then, if the person wants it, its execution.

Nothing is deleted: what cannot be used moves to `quarantine/`. Nothing here runs by itself (CONF-12).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from store import layout
from store.errors import (
    BrokenReferenceError,
    IntegrityCheckError,
    OrphanedNodeError,
    StoreError,
    StoreWriteError,
)
from store.file_store import FileStore
from store.jcs import sha256_hex
from store.node import ColdNode, verified

Kind = Literal["restore", "adopt", "quarantine", "drop", "none"]


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a repair: what would be done with which file, and why."""

    kind: Kind
    step_id: int | None
    file: str
    reason: str

    def __str__(self) -> str:
        where = self.file or ("the log" if self.step_id is None else f"step {self.step_id}")
        return f"{self.kind} {where}: {self.reason}"


def plan(store: FileStore) -> tuple[Action, ...]:
    """What a repair would do, fault by fault. Reads only."""
    faults = store.validate().faults
    whole = _from_log(store, {fault.step_id for fault in faults if fault.step_id is not None})
    return tuple(_answer(store, fault, whole) for fault in faults)


def _answer(store: FileStore, fault: StoreError, whole: Mapping[int, bytes]) -> Action:
    if (store.folder / layout.NODE_FOLDER).is_symlink():
        return Action("none", fault.step_id, "", f"{layout.NODE_FOLDER} is a link; put a folder in its place ({fault})")
    if isinstance(fault, OrphanedNodeError):
        return _orphan(store, fault)
    step_id = fault.step_id
    if step_id is None or not isinstance(fault, BrokenReferenceError | IntegrityCheckError):
        return Action("none", step_id, "", f"only a person can answer this ({fault})")
    file = layout.node_file(step_id)
    if step_id in whole:
        return Action("restore", step_id, file, f"the log holds the step whole ({fault})")
    return Action("drop", step_id, file, f"no whole copy is left; the entry leaves the index ({fault})")


def _orphan(store: FileStore, fault: OrphanedNodeError) -> Action:
    try:
        node = ColdNode.from_bytes(layout.read_plain(store.folder / fault.file), fault.step_id)
    except StoreError as error:
        return Action("quarantine", fault.step_id, fault.file, f"it does not verify ({error})")
    if node.session != store.session or layout.node_file(node.step_id) != fault.file:
        return Action("quarantine", fault.step_id, fault.file, f"it is step {node.step_id} of session {node.session!r}")
    return Action("adopt", node.step_id, fault.file, "it verifies; it gets its index entry back")


def _from_log(store: FileStore, step_ids: Collection[int]) -> dict[int, bytes]:
    """The node bytes of those steps that the log holds whole."""
    whole: dict[int, bytes] = {}
    for step_id, raw in store.logged(step_ids).items():
        with contextlib.suppress(IntegrityCheckError, KeyError):  # KeyError: an orphan, which has no entry
            verified(store.entries[step_id], raw, store.session)
            whole[step_id] = raw
    return whole


def repair(store: FileStore, actions: Sequence[Action]) -> None:
    """Carry out a plan. Raises StoreWriteError where the system refuses; what was done until then stands."""
    whole = _from_log(store, {action.step_id for action in actions if action.step_id is not None})
    for action in actions:
        path = store.folder / action.file
        if action.kind == "restore" and action.step_id in whole:
            _restore(store, action, whole[action.step_id])
        elif action.kind == "adopt" and action.step_id is not None:
            store.adopt(ColdNode.from_bytes(layout.read_plain(path), action.step_id))
        elif action.kind == "quarantine":
            _set_aside(store, action.file)
        elif action.kind == "drop" and action.step_id is not None:
            _set_aside(store, action.file)
            store.drop([action.step_id])


def _restore(store: FileStore, action: Action, raw: bytes) -> None:
    _set_aside(store, action.file)
    layout.private_folder(store.folder / layout.NODE_FOLDER)
    layout.replace(store.folder / action.file, raw)
    node = ColdNode.from_bytes(raw, action.step_id)
    if store.entries[node.step_id].file != action.file:  # it named another file: the node gets an entry of ours
        store.drop([node.step_id])
        store.adopt(node)


def _set_aside(store: FileStore, file: str) -> None:
    path = store.folder / file
    if not path.exists() and not path.is_symlink():
        return
    layout.private_folder(store.folder / layout.QUARANTINE)
    try:
        plain = path.is_file() and not path.is_symlink()
        mark = sha256_hex(path.read_bytes())[:8] if plain else "not-a-file"  # two versions of a step keep apart
        path.rename(store.folder / layout.QUARANTINE / f"{path.name}.{mark}")
    except OSError as error:
        raise StoreWriteError(path, error) from error
