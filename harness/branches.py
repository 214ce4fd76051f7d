"""The lines of one conversation: a client that goes back and says something else opens a branch (ipcf.md 2).

A branch reads its parent below the step at which it left, and nothing of what came after there. A history that shares
nothing with any branch (another agent under the same session id, a cleared talk) is a branch without a parent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from harness.align import Alignment
from harness.errors import BranchError
from harness.history import History
from harness.ledger import LEDGER_FILE
from harness.plan import Planner
from harness.reading import Intake
from harness.view import TURN_FILE, VIEW_FILE, OpenTurn, View, load_state, path_of, save_state
from mmu.unit import MMU
from store import (
    Audit,
    ColdNode,
    ColdStore,
    Forgotten,
    IndexEntry,
    Progress,
    Recovery,
    StoreError,
    StoreFormatError,
    Version,
)

BRANCHES_FILE = "branches.json"
BRANCH_FILE = "branch.json"


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a branch left: its own session, its parent's (empty without one), the first step it does not share, and the
    artifact hash of the last one that it does (the link)."""

    session: str
    parent: str = ""
    step: int = 0
    link: str = ""


@dataclass(frozen=True, slots=True)
class _Forks:
    current: str
    forks: tuple[Fork, ...]


@dataclass(frozen=True, slots=True)
class _BranchOf:
    root: str


def root_of(store: ColdStore) -> str:
    """The session that a store is a branch of; its own if it is none. Raises StoreFormatError for a damaged file."""
    branch_of = load_state(store, BRANCH_FILE, _BranchOf)
    return store.session if branch_of is None else branch_of.root


def read_forks(store: ColdStore) -> tuple[tuple[Fork, ...], str]:
    """The branches of a session and the name of the current one. Raises StoreFormatError for a damaged file."""
    state = load_state(store, BRANCHES_FILE, _Forks)
    if state is None:
        return (), store.session
    names = {store.session}
    for fork in state.forks:
        if fork.session in names or (fork.parent and fork.parent not in names):
            raise StoreFormatError(
                path_of(store, BRANCHES_FILE), f"branch {fork.session!r} has no place in it; remove the file to go on"
            )
        names.add(fork.session)
    if state.current not in names:
        raise StoreFormatError(
            path_of(store, BRANCHES_FILE), f"there is no branch {state.current!r}; remove the file to go on"
        )
    return state.forks, state.current


class BranchStore:
    """A store that reads its parent's steps below a fork and keeps its own."""

    def __init__(self, own: ColdStore, parent: ColdStore, below: int) -> None:
        self.own, self._parent, self._below = own, parent, below
        self.session = own.session
        self._read()

    def _read(self) -> None:
        shared = {s: entry for s, entry in self._parent.entries.items() if s < self._below}
        self._entries, self._epoch = shared | dict(self.own.entries), self.version.epoch

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        """The parent's entries below the fork, and its own."""
        return MappingProxyType(self._entries)

    @property
    def faults(self) -> Sequence[StoreError]:
        """What opening its own part found broken."""
        return self.own.faults

    @property
    def recovery(self) -> Recovery:
        """What opening its own part completed."""
        return self.own.recovery

    def refresh(self) -> Sequence[IndexEntry]:
        """Take in what other processes archived on this branch, and what was forgotten of its parent."""
        self._parent.refresh()
        fresh = self._took(self.own.refresh())
        if self.version.epoch != self._epoch:
            self._read()
        return fresh

    def _took(self, entries: Sequence[IndexEntry]) -> Sequence[IndexEntry]:
        self._entries.update((entry.step_id, entry) for entry in entries)
        return entries

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Archive on this branch. Raises as `ColdStore.archive`."""
        return self._took(self.own.archive(nodes, flush=flush))

    def flush(self) -> None:
        """Make this branch's steps durable."""
        self.own.flush()

    def get(self, step_id: int) -> ColdNode:
        """A step of this branch or, below the fork, of its parent. Raises as `ColdStore.get`."""
        shared = step_id not in self.own.entries and step_id in self._entries
        return self._parent.get(step_id) if shared else self.own.get(step_id)

    @property
    def version(self) -> Version:
        """Which history its own part is; it is another epoch when something old of the parent changes, too."""
        own, parent = self.own.version, self._parent.version
        return Version(own.epoch + parent.epoch, own.count, own.link)

    def link_at(self, count: int) -> str | None:
        """The link of its own part's chain."""
        return self.own.link_at(count)

    def recent(self, count: int) -> Sequence[IndexEntry]:
        """The entries of its own part after the first `count`."""
        return self.own.recent(count)

    @property
    def derived(self) -> Path | None:
        """The folder of its own part."""
        return self.own.derived

    def reindex(self, nodes: Sequence[ColdNode]) -> None:
        """Give steps of its own part a new projection."""
        self.own.reindex(nodes)
        self._took([self.own.entries[node.step_id] for node in nodes])

    @property
    def forgotten(self) -> Forgotten:
        """What was forgotten of its own part."""
        return self.own.forgotten

    def forget(self, step_ids: Collection[int], *, at: str) -> Sequence[int]:
        """Erase steps, those that it shares in the parent, too."""
        gone = [*self.own.forget(step_ids, at=at), *self._parent.forget(set(step_ids) & self._entries.keys(), at=at)]
        for step_id in gone:
            self._entries.pop(step_id, None)
        return gone

    def validate(self, progress: Progress | None = None, *, since: int = 0, anchor: Path | None = None) -> Audit:
        """Audit its own part; the parent is audited as itself."""
        return self.own.validate(progress, since=since, anchor=anchor)

    def read_document(self, name: str) -> bytes | None:
        """A document of this branch."""
        return self.own.read_document(name)

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Replace a document of this branch."""
        self.own.write_document(name, data, flush=flush)

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        """Append to a document of this branch."""
        self.own.append_document(name, line_after)

    def change_document(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a document of this branch."""
        self.own.change_document(name, change)

    def export_index(self) -> bytes:
        """The page table of its own part."""
        return self.own.export_index()

    def sibling(self, session: str) -> ColdStore:
        """Another session of the same place."""
        return self.own.sibling(session)

    def close(self) -> None:
        """Close its own part."""
        self.own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Branch:
    """One line of the conversation: its memory, and what its prompt holds at the moment."""

    def __init__(self, fork: Fork, mmu: MMU, seal: str) -> None:
        self.fork, self.mmu, self.store = fork, mmu, mmu.store
        self.intake, self.planner = Intake(mmu), Planner(mmu, seal)
        self.view, self.turn, self._seal = View(), OpenTurn(), seal
        self.doubts: list[str] = []  # what was wrong with the view as it was saved
        self._seen: dict[str, bytes | None] = {VIEW_FILE: None, TURN_FILE: None}
        self.refresh()

    def refresh(self) -> None:
        """Take in what another process did to this prompt since. Raises StoreFormatError for a damaged file."""
        if self._changed(VIEW_FILE):
            self.mmu.refresh()  # whoever folded a step has archived it before
            view = View.load(self.store)
            lost = [step_id for step_id in view.folded | view.cut if step_id not in self.store.entries]
            self.view = view.without(lost)
            self.doubts += [f"step {step_id} is not archived; it stays in the prompt" for step_id in sorted(lost)]
        if self._changed(TURN_FILE):
            self.turn = OpenTurn.load(self.store, self._seal)

    def _changed(self, name: str) -> bool:
        raw = self.store.read_document(name)
        changed = raw is not None and raw != self._seen[name]
        self._seen[name] = raw
        return changed

    def keep(self, *, view: View | None = None, turn: OpenTurn | None = None, save: bool = True) -> None:
        """Hold a view or a turn, and save it (a turn: if wanted).

        Raises StoreWriteError; a turn is then held all the same, a view is not.
        """
        if view is not None:
            self._seen[VIEW_FILE] = view.save(self.store)
            self.view = view
        if turn is not None:
            self.turn = turn
        if turn is not None and save:
            self._seen[TURN_FILE] = turn.save(self.store)


class Branches:
    """The branches of one session. `memory` makes the memory management unit of a branch's store."""

    def __init__(self, root: ColdStore, memory: Callable[[ColdStore], MMU]) -> None:
        self._root, self._memory = root, memory
        if root_of(root) != root.session:
            raise BranchError(root.session, root_of(root))
        self._forks, current = read_forks(root)
        self._open: dict[str, Branch] = {}
        self.current = self._branch(current)

    def _names(self) -> tuple[str, ...]:
        return (self._root.session, *(fork.session for fork in self._forks))

    def _branch(self, name: str) -> Branch:
        """A branch by its session; opened with its parents at first use."""
        if name not in self._open:
            fork = next((fork for fork in self._forks if fork.session == name), Fork(self._root.session))
            self._open[name] = Branch(fork, self._memory(self._store(fork)), self._root.session)
        return self._open[name]

    def _store(self, fork: Fork) -> ColdStore:
        if fork.session == self._root.session:
            return self._root
        own = self._root.sibling(fork.session)
        return BranchStore(own, self._branch(fork.parent).store, fork.step) if fork.parent else own

    def take(self, history: History) -> tuple[Branch, Alignment]:
        """The branch that a history belongs to, and its steps' ids there; it becomes the current one.

        The branch it continues, of several the one that knows most of it; else a new one that leaves the best match. One
        step that was taken back (a prompt sent again in other words) opens no branch: it is withdrawn where it is. Raises
        StoreError.
        """
        found: list[tuple[bool, int, Branch, Alignment]] = []
        for branch in self._by_recency():
            branch.refresh()
            alignment = branch.intake.align(history, branch.turn.order)
            continues = self._continues(branch, alignment, history)
            if continues and branch is self.current and branch.turn.missing.issuperset(alignment.missing):
                return self._use(branch, alignment)  # the common case: nothing that it showed is gone
            found.append((continues, alignment.matched, branch, alignment))
        continues, matched, branch, alignment = max(found, key=lambda one: one[:2])
        if continues:
            return self._use(branch, alignment)
        gone = [step_id for step_id in alignment.inner if step_id not in branch.turn.missing]
        lost = [step_id for step_id in alignment.lost if step_id not in branch.view.withdrawn]
        if matched and len(lost) == 1 and gone == lost:
            branch.keep(view=replace(branch.view, withdrawn=branch.view.withdrawn | set(lost)))
            return self._use(branch, alignment)
        fork = self._fork(branch, [*gone, *alignment.lost][0] if matched else None)
        return self._use(fork, fork.intake.align(history))

    def _continues(self, branch: Branch, alignment: Alignment, history: History) -> bool:
        if not history.steps or not (alignment.matched or alignment.missing):  # nothing to compare
            return branch is self.current
        gone = set(alignment.lost) - branch.view.withdrawn
        return alignment.matched > 0 and not gone

    def _by_recency(self) -> Iterator[Branch]:
        yield self.current
        for name in reversed(self._names()):
            if name != self.current.store.session:
                yield self._branch(name)

    def _fork(self, parent: Branch, step: int | None) -> Branch:
        """A new branch: of a parent before the first step that is gone, or without one."""
        fork = Fork(self._free_name())
        if step is not None:
            shared = max((s for s in parent.store.entries if s < step), default=None)
            link = parent.store.entries[shared].artifact_sha256 if shared is not None else ""
            fork = replace(fork, parent=parent.store.session, step=step, link=link)
        self._forks = (*self._forks, fork)
        branch = self._branch(fork.session)
        own = {"root": self._root.session, **asdict(fork)}
        save_state(self._root.sibling(fork.session), BRANCH_FILE, own)
        branch.turn = replace(parent.turn.evicted(), missing=frozenset(), order=())
        if step is not None:
            branch.keep(view=parent.view.below(fork.step))
        return branch

    def _free_name(self) -> str:
        """The next name that neither a branch nor a session of somebody else has."""
        for number in count(len(self._forks) + 2):
            name = f"{self._root.session}~{number}"
            other = self._root.sibling(name)
            documents = (TURN_FILE, VIEW_FILE, BRANCH_FILE, LEDGER_FILE)
            if not other.version.count and all(other.read_document(file) is None for file in documents):
                return name
        raise AssertionError("numbers do not end")

    def _use(self, branch: Branch, alignment: Alignment) -> tuple[Branch, Alignment]:
        if branch is not self.current:
            branch.turn = replace(branch.turn, number=max(branch.turn.number, self.current.turn.number))
            self.current = branch
            save_state(self._root, BRANCHES_FILE, _Forks(branch.store.session, self._forks))
        return branch, alignment

    def close(self) -> None:
        """Close every branch that was opened."""
        for branch in self._open.values():
            branch.store.close()
        self._root.close()


def branch_rows(store: ColdStore) -> list[dict[str, Any]]:
    """The branches of a session for a table: where each left, how many steps of its own it has, which one is current."""
    forks, current = read_forks(store)
    rows = []
    for fork in (Fork(store.session), *forks):
        own = store if fork.session == store.session else store.sibling(fork.session)
        rows.append({**asdict(fork), "steps": len(own.entries), "current": fork.session == current})
    return rows
