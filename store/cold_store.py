"""What a store of one session can do. The file store and the memory store keep the same contract (tests/store)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from store.errors import StoreError
from store.forgotten import Forgotten
from store.node import ColdNode, IndexEntry

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of `validate`: how many entries were checked, every fault found, in the order of the steps, where the
    chain ends (`count:link`), the steps that were forgotten, and what nobody can tell."""

    checked: int
    faults: tuple[StoreError, ...]
    head: str = ""
    forgotten: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def raise_first(self) -> None:
        """Raise the first fault, if there is one."""
        if self.faults:
            raise self.faults[0]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening the store had to complete: steps acknowledged but not yet filed, and bytes of a torn last write."""

    redone: tuple[int, ...] = ()
    torn_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """Which history a store holds: how often something old was changed, how many entries its chain has, its last link."""

    epoch: int
    count: int
    link: str


class ColdStore(Protocol):
    """Archived steps of one session, and a few small documents beside them."""

    session: str

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        """The index by step id. Read-only."""

    @property
    def faults(self) -> Sequence[StoreError]:
        """What opening found broken. Opening itself never raises for content."""

    @property
    def recovery(self) -> Recovery:
        """What opening completed (no repair: it finishes acknowledged writes)."""

    def refresh(self) -> Sequence[IndexEntry]:
        """Take in what other processes archived since; returns the new entries."""

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Write steps, all or none, with one flush; on return they are acknowledged.

        Without `flush` they are acknowledged by the next `flush`: until then a killed process loses nothing, a power cut
        may. That is enough for a step that its client still shows.

        The same payload again is a no-op. Raises NodeConflictError (another payload), OrphanedNodeError (a file without
        entry stands there), StoreWriteError, StoreLockedError. After a raise nothing of the call is kept.
        """

    def flush(self) -> None:
        """Make durable what was archived without a flush. Raises StoreWriteError or StoreLockedError."""

    def get(self, step_id: int) -> ColdNode:
        """Read a step with all its hashes checked.

        Raises NodeNotFoundError, OrphanedNodeError, BrokenReferenceError or IntegrityCheckError.
        """

    @property
    def version(self) -> Version:
        """Which history this is. What was derived from it is good while the epoch is the same and `link_at` its count gives
        its link; then only `recent` is new."""

    def link_at(self, count: int) -> str | None:
        """The chain's link after the first `count` entries, None if there are not so many."""

    def recent(self, count: int) -> Sequence[IndexEntry]:
        """The entries archived after the first `count` of the chain, in order."""

    @property
    def derived(self) -> Path | None:
        """A folder, not made yet, for files that can be made again at any time; None where there is no disk."""

    def reindex(self, nodes: Sequence[ColdNode]) -> None:
        """Give archived steps a new projection, after a change of extraction: new entries in the chain, the same payloads.

        Raises IntegrityCheckError for another payload, NodeNotFoundError, StoreWriteError, StoreLockedError.
        """

    @property
    def forgotten(self) -> Forgotten:
        """What was forgotten here."""

    def forget(self, step_ids: Collection[int], *, at: str) -> Sequence[int]:
        """Erase steps from every file of the store; gives those that were there. `at`: the time, ISO 8601.

        A salted commitment stays in the chain, and a keyed mark of the match key in `forgotten`. A process that dies at it is
        caught up with by the next that opens the store. Raises StoreWriteError or StoreLockedError.
        """

    def validate(self, progress: Progress | None = None, *, since: int = 0, anchor: Path | None = None) -> Audit:
        """Check the chain, every entry and every file; list all faults. Nodes of the chain's first `since` entries are not
        read. `anchor`: a file outside that was told the heads; with it a folder put back to an older state shows."""

    def read_document(self, name: str) -> bytes | None:
        """A small document of the session (`policy.json`, ...), None if there is none."""

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Replace a document in one piece; with `flush` it is durable on return."""

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        """Append a line. `line_after` gives it (without line feed) from the last line there, empty for the first; nobody
        writes in between. A torn last line is ended first. A killed process loses no line, a power cut may cost the last.
        """

    def change_document(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace a document by what `change` makes of its bytes (empty where there is none); nobody writes in between."""

    def sibling(self, session: str) -> ColdStore:
        """Another session of the same place, made if it is missing."""

    def export_index(self) -> bytes:
        """Write the page table in human-readable form and return its bytes. Nothing reads it back."""

    def close(self) -> None:
        """Finish filing. The store can be opened again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...
