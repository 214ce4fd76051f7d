"""Forgetting on request: the step, what was derived from it, and every word of it that a session's documents hold.

The store erases its own (payload, rendering, terms, log records, export); here go the hot lines, the blocks in place and the
terms in the ledger, on every branch of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from harness.branches import read_forks
from harness.ledger import Ledger
from harness.receipt import Receipt
from harness.view import OpenTurn, View
from mmu.terms import fold_case
from store import ColdStore, IndexEntry, Progress, StoreError, decode_text

OUT_OF_REACH = (
    "the client's own history: what it sends of a forgotten step is left out of the prompt and not archived again",
    "what was sent to a provider before, its logs and its caches",
    "copies of the folder: backups, snapshots, sync services, and blocks of the disk that were freed and not overwritten",
    "what other steps say about it: look for its words with `mmu forget --matching`",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A step that is to be forgotten: on which branch (its session) it lies, its size in bytes, and a line about it."""

    session: str
    step_id: int
    size: int
    summary: str


def sessions_of(root: ColdStore) -> Iterator[ColdStore]:
    """The stores of a session: its own, and one for each branch."""
    yield root
    for fork in read_forks(root)[0]:
        if fork.session != root.session:
            yield root.sibling(fork.session)


def named(root: ColdStore, step_ids: Collection[int]) -> tuple[Target, ...]:
    """The steps of these ids, on whatever branch they lie."""
    found = [(store, store.entries[s]) for store in sessions_of(root) for s in sorted(step_ids) if s in store.entries]
    return tuple(_target(store, entry) for store, entry in found)


def everything(root: ColdStore) -> tuple[Target, ...]:
    """Every step of the session."""
    return tuple(_target(store, entry) for store in sessions_of(root) for entry in store.entries.values())


def matching(root: ColdStore, text: str, progress: Progress | None = None) -> tuple[Target, ...]:
    """The steps that hold a text, in whatever case, in their payload, rendering or summary. Reads every node.

    A step that does not read is among them: what it held nobody can say.
    """
    wanted, found, done = fold_case(text), list[Target](), 0
    stores = list(sessions_of(root))
    total = sum(len(store.entries) for store in stores)
    for store in stores:
        for step_id in list(store.entries):
            done += 1
            if progress is not None:
                progress(done, total)
            try:
                node = store.get(step_id)
                texts = [node.rendering, node.summary]
                if node.payload_kind != "bytes":
                    texts.append(decode_text(node.payload))
            except (StoreError, UnicodeDecodeError):
                texts = [text]
            if any(wanted in fold_case(one) for one in texts):
                found.append(_target(store, store.entries[step_id]))
    return tuple(found)


def outdated(
    root: ColdStore, *, now: str, days: float | None = None, keep_bytes: int | None = None
) -> tuple[Target, ...]:
    """The steps that a retention rule gives up: older than so many days at `now` (ISO 8601), and the oldest of those that do
    not fit into so many bytes of payload."""
    aged = [
        (entry.folded_at or entry.timestamp, store, entry)
        for store in sessions_of(root)
        for entry in store.entries.values()
    ]
    aged.sort(key=lambda one: (one[0], one[2].step_id))
    size = sum(entry.size for _, _, entry in aged)
    line = _since(now, days) if days is not None else ""
    gone = []
    for time, store, entry in aged:
        if time < line or (keep_bytes is not None and size > keep_bytes):
            gone.append(_target(store, entry))
            size -= entry.size
    return tuple(gone)


def _since(now: str, days: float) -> str:
    then = datetime.fromisoformat(now).astimezone(UTC) - timedelta(days=days)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def _target(store: ColdStore, entry: IndexEntry) -> Target:
    return Target(store.session, entry.step_id, entry.size, entry.summary)


def forget(root: ColdStore, targets: Sequence[Target], *, at: str) -> None:
    """Erase steps everywhere in a session; on return nothing of them is left in its folders. `at`: the time, ISO 8601.

    Raises StoreWriteError or StoreLockedError; what was erased until then stays so, and the call can be made again.
    """
    _clear(root, targets)
    for store in sessions_of(root):
        gone = {target.step_id for target in targets if target.session == store.session}
        if gone:
            store.forget(gone, at=at)
    _clear(root, targets)  # a running process may have written meanwhile what it had in place


def _clear(root: ColdStore, targets: Sequence[Target]) -> None:
    """Take the steps out of the documents. A branch may show its parents' steps, so every document is looked at."""
    gone = {target.step_id for target in targets}
    for store in sessions_of(root):
        own = {target.step_id for target in targets if target.session == store.session}
        _clear_documents(store, own | (gone - store.entries.keys()), root.session)
    Ledger(root).rewrite(lambda receipt: _without_words(receipt, gone))


def _clear_documents(store: ColdStore, gone: Collection[int], seal: str) -> None:
    view, turn = View.load(store), OpenTurn.load(store, seal)
    if (view.folded | view.cut) & set(gone):
        view.without(gone).save(store)
    if any(h.step_id in gone for h in turn.hydrated):
        # A block holds several steps, and its envelope closes over all of them: it goes as a whole.
        replace(turn, blocks=(), hydrated=()).save(store)


def _without_words(receipt: Receipt, gone: Collection[int]) -> Receipt:
    hydrated = tuple(replace(one, terms=()) if one.step_id in gone else one for one in receipt.hydrated)
    dropped = tuple(replace(one, terms=()) if one.step_id in gone else one for one in receipt.dropped)
    return replace(receipt, hydrated=hydrated, dropped=dropped)
