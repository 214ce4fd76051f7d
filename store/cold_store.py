"""What a store of one session can do. The file store and the memory store keep the same contract (tests/store)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from store.errors import StoreError
from store.node import ColdNode, IndexEntry

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of `validate`: how many entries were checked, and every fault found, in the order of the steps."""

    checked: int
    faults: tuple[StoreError, ...]

    def raise_first(self) -> None:
        """Raise the first fault, if there is one."""
        if self.faults:
            raise self.faults[0]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening the store had to complete: steps acknowledged but not yet filed, and bytes of a torn last write."""

    redone: tuple[int, ...] = ()
    torn_bytes: int = 0


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

    def validate(self, progress: Progress | None = None) -> Audit:
        """Check every entry and every file; list all faults."""

    def read_document(self, name: str) -> bytes | None:
        """A small document of the session (`policy.json`, ...), None if there is none."""

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Replace a document in one piece; with `flush` it is durable on return."""

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        """Append a line. `line_after` gives it (without line feed) from the last line there, empty for the first; nobody
        writes in between. A torn last line is ended first. A killed process loses no line, a power cut may cost the last.
        """

    def sibling(self, session: str) -> ColdStore:
        """Another session of the same place, made if it is missing."""

    def export_index(self) -> bytes:
        """Write the page table in human-readable form and return its bytes. Nothing reads it back."""

    def close(self) -> None:
        """Finish filing. The store can be opened again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...
