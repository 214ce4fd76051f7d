"""Auditing a session's folder: the chain, every node file against its entry, the heads that were written down, the export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import orjson

from store import layout
from store.chain import Head
from store.chain_audit import ChainAudit
from store.cold_store import Progress
from store.errors import IntegrityCheckError, StoreError
from store.forgotten import FORGOTTEN_FILE, Forgotten
from store.jcs import sha256_hex
from store.journal import Journal
from store.node import ColdNode, IndexEntry, is_artifact
from store.node_folder import NodeFolder

NO_ANCHOR = "without an anchor nobody can tell whether the whole folder was put back to an older state"


@dataclass(frozen=True, slots=True)
class WrittenHeads:
    """The heads of the chain that were written down, by where; `faults` say why one could not be read."""

    said: dict[str, Head]
    faults: tuple[StoreError, ...]
    anchored: bool

    @classmethod
    def read(cls, folder: Path, session: str, key: bytes | None, anchor: Path | None) -> Self:
        """Those of a session folder and of an anchor outside."""
        said: dict[str, Head] = {}
        faults: list[StoreError] = []
        for who, path in (("HEAD", folder / layout.HEAD_FILE), ("the anchor", anchor)):
            if path is None:
                continue
            try:
                raw = layout.read_plain(path)
                said[who] = _anchored(raw, session) if path == anchor else Head.from_bytes(raw, session, key)
            except FileNotFoundError:
                faults.append(IntegrityCheckError(None, str(path), "a head of the chain", "missing"))
            except ValueError as error:
                faults.append(IntegrityCheckError(None, str(path), "a head of the chain", str(error)))
            except StoreError as error:
                faults.append(error)
        return cls(said, tuple(faults), anchor is not None)


def _anchored(raw: bytes, session: str) -> Head:
    """The last head of a session that an anchor was told. Raises ValueError."""
    rows = [orjson.loads(line) for line in raw.splitlines()]
    told = [row["head"] for row in rows if isinstance(row, dict) and row.get("session") == session and "head" in row]
    if not told:
        raise ValueError(f"it was never told of session {session!r}")
    return Head.parse(str(told[-1]))


def walk(
    journal: Journal,
    nodes: NodeFolder,
    get: Callable[[int], ColdNode],
    heads: WrittenHeads,
    *,
    since: int,
    progress: Progress | None,
) -> tuple[ChainAudit, Sequence[StoreError]]:
    """Go through the whole chain, and read the nodes behind its first `since` entries; gives their faults in order.

    A node whose bytes hash to what its entry says is what was written; any other is read again by `get`, which names what
    is wrong with it, or finds that the entry is not the step's newest.
    """
    chain = ChainAudit(journal.session, heads.said)
    faults: list[StoreError] = []
    for number in journal.generations():
        for place, entry in chain.walk(journal.records(number), f"log.{number}"):
            if place >= since and not _is_sound(entry, nodes):
                try:
                    get(entry.step_id)
                except StoreError as fault:
                    faults.append(fault)
            if progress is not None:
                progress(place + 1, journal.state.head.count)
    chain.compare()
    faults.sort(key=lambda fault: fault.step_id or 0)
    return chain, faults


def _is_sound(entry: IndexEntry, nodes: NodeFolder) -> bool:
    if entry.file != layout.node_file(entry.step_id):
        return False
    try:
        return is_artifact(nodes.read(entry.step_id), entry.artifact_sha256)
    except (OSError, StoreError):
        return False


def export_faults(folder: Path, exports: tuple[str, ...]) -> Sequence[StoreError]:
    """Whether the exported index is what was exported last (by its hash), or just before that by a process that died at it;
    one that was not made, or deleted, is no matter."""
    try:
        found = sha256_hex(layout.read_plain(folder / layout.INDEX_FILE))
    except FileNotFoundError:
        return ()
    except StoreError as error:
        return [error]
    return [] if found in exports else [IntegrityCheckError(None, layout.INDEX_FILE, exports[0] or "none", found)]


def forgotten_faults(read: Callable[[], Forgotten], chained: Sequence[int]) -> Sequence[StoreError]:
    """Whether the list of forgotten steps reads, and is what the chain says."""
    try:
        listed = read().steps.keys()
    except StoreError as error:
        return [error]
    if listed != set(chained):
        odd = ", ".join(map(str, sorted(listed ^ set(chained))[:5]))
        return [IntegrityCheckError(None, FORGOTTEN_FILE, "what the chain says", f"another list (steps {odd})")]
    return []
