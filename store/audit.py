"""Rules that every store keeps: what a batch may hold, what an audit lists, how the index is exported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from store.cold_store import Progress
from store.errors import InvalidNodeError, NodeConflictError, OrphanedNodeError, StoreError
from store.jcs import canonical_sha256
from store.layout import node_file, step_of
from store.node import PROJECTION_VERSION, ColdNode, IndexEntry

INDEX_FORMAT, INDEX_VERSION = "mmu-index", 1


def check_batch(
    nodes: Sequence[ColdNode], session: str, index: Mapping[int, IndexEntry], exists: Callable[[str], bool]
) -> list[ColdNode]:
    """The nodes of a batch that are new here, each once.

    `exists` says whether a file (relative path) stands in the store. Raises NodeConflictError for a step id that holds
    another payload, here or earlier in the batch; OrphanedNodeError where a file without entry would be overwritten;
    InvalidNodeError for a node of another session.
    """
    batch: dict[int, str] = {}
    fresh: list[ColdNode] = []
    for node in nodes:
        if node.session != session:
            raise InvalidNodeError("session", f"a node of {node.session!r} cannot lie in {session!r}")
        known = index.get(node.step_id)
        stored = known.payload_sha256 if known else batch.get(node.step_id)
        if stored is None:
            if exists(file := node_file(node.step_id)):
                raise OrphanedNodeError(node.step_id, file)
            fresh.append(node)
            batch[node.step_id] = node.payload_sha256
        elif stored != node.payload_sha256:
            raise NodeConflictError(node.step_id, stored, node.payload_sha256)
    return fresh


def audit_nodes(
    step_ids: Iterable[int], get: Callable[[int], ColdNode], files: Iterable[str], progress: Progress | None = None
) -> tuple[StoreError, ...]:
    """Read every step, and look for an entry of every node file (relative path). Lists all faults, in order."""
    faults: list[StoreError] = []
    steps = sorted(step_ids)
    for number, step_id in enumerate(steps, 1):
        try:
            get(step_id)
        except StoreError as fault:
            faults.append(fault)
        if progress is not None:
            progress(number, len(steps))
    known = {node_file(step_id) for step_id in steps}
    orphans = [OrphanedNodeError(step_of(file.rpartition("/")[2]), file) for file in sorted(set(files) - known)]
    return (*faults, *orphans)


def index_document(session: str, entries: Iterable[IndexEntry]) -> bytes:
    """`recall_index.json`: every entry, sorted by step id, indented for people, with the hash of the canonical entries."""
    rows = [entry.document() for entry in sorted(entries, key=lambda entry: entry.step_id)]
    document: dict[str, Any] = {
        "format": INDEX_FORMAT,
        "version": INDEX_VERSION,
        "session": session,
        "projection_version": PROJECTION_VERSION,
        "entries_sha256": canonical_sha256(rows),
        "entries": rows,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
