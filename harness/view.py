"""What the prompt holds at the moment: which steps are folded, their hot lines, and the blocks of the open turn.

Two documents of the session hold it, so that another process sends the same bytes: `view.json` changes when something
folds, `open_turn.json` with each dispatch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import orjson

from harness.document import read
from harness.receipt import Hydrated
from mmu.envelope import strip
from store import ColdStore, StoreFormatError

VIEW_FILE, TURN_FILE = "view.json", "open_turn.json"
_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """What left the prompt, as step ids: `folded` whole, of these `lined` with a line of their own; exchanges whose results
    are `cut`; steps that the client took back (`withdrawn`: never recalled); steps that stay in any case (`pins`).

    Only ids are saved: every word that stands for a step comes from the store.
    """

    folded: frozenset[int] = frozenset()
    lined: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    withdrawn: frozenset[int] = frozenset()
    pins: frozenset[int] = frozenset()

    def showing(self, ids: Collection[int]) -> Self:
        """The view with a history that shows these steps: what is shown was not taken back."""
        again = self.withdrawn & set(ids)
        return replace(self, withdrawn=self.withdrawn - again) if again else self

    def without(self, ids: Collection[int]) -> Self:
        """The view with these steps back in the prompt."""
        gone = frozenset(ids)
        return replace(self, folded=self.folded - gone, lined=self.lined - gone, cut=self.cut - gone)

    def below(self, step_id: int) -> Self:
        """The view of a branch that leaves before a step."""
        return type(self)(*(frozenset(s for s in getattr(self, f.name) if s < step_id) for f in fields(self)))

    @classmethod
    def load(cls, store: ColdStore) -> Self:
        """The view as it was saved. Raises StoreFormatError for a damaged or newer file."""
        return load_state(store, VIEW_FILE, cls) or cls()

    def save(self, store: ColdStore) -> bytes:
        """Keep it; gives what was written. Raises StoreWriteError."""
        return save_state(store, VIEW_FILE, self)


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """What was brought back, and where it stands: in the message that opened the turn, or behind an exchange (`tail`)."""

    step_id: int
    text: str
    tail: bool = False


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """The turn that is being answered, and what was brought back for it.

    `opening` is the step id of its user message; `left` what remains of its budget; `scanned` the newest step whose words
    were scanned; `dispatches` how many there were in this turn. Of the last one: `baseline` is S, `hot` what its hot lines
    cost, `beside` what was sent outside of steps, `open_tokens` its steps that were not archived, `missing` the known
    steps that its history did not show, `order` its steps where they did not stand in the order of their ids, `at` when
    it was (seconds since 1970).
    """

    number: int = 0
    dispatches: int = 0
    opening: int | None = None
    blocks: tuple[PlacedBlock, ...] = ()
    hydrated: tuple[Hydrated, ...] = ()
    left: int = 0
    scanned: int = -1
    baseline: int = 0
    hot: int = 0
    beside: int = 0
    open_tokens: int = 0
    missing: frozenset[int] = field(default_factory=frozenset)
    order: tuple[int, ...] = ()
    at: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether an answer is still to come."""
        return self.opening is not None

    def begin(self, opening: int | None, budget: int) -> Self:
        """The next turn, opened by a user message, with nothing brought back yet."""
        return replace(self.evicted(), number=self.number + 1, dispatches=0, opening=opening, left=budget, scanned=-1)

    def evicted(self) -> Self:
        """The turn is over: nothing of it stays in the prompt."""
        return replace(self, opening=None, blocks=(), hydrated=(), left=0)

    @classmethod
    def load(cls, store: ColdStore, seal: str) -> Self:
        """The turn as it was saved; a file that a power cut left empty counts as none. Raises as `View.load`.

        Its blocks must be envelopes of the session `seal`, whole and unchanged.
        """
        turn = load_state(store, TURN_FILE, cls) if store.read_document(TURN_FILE) else None
        if turn is None:
            return cls()
        if any(strip(block.text, seal) != ("", 1) for block in turn.blocks):
            raise StoreFormatError(path_of(store, TURN_FILE), "a block in it was changed; remove the file to go on")
        return turn

    def save(self, store: ColdStore) -> bytes:
        """Keep it; gives what was written. Raises StoreWriteError.

        Not flushed: a turn that a power cut loses is planned anew, to the same bytes.
        """
        return save_state(store, TURN_FILE, self, flush=False)


def path_of(store: ColdStore, name: str) -> Any:
    """Where a document lies, for an error."""
    folder = getattr(store, "folder", None)
    return folder / name if folder is not None else name


def load_state(store: ColdStore, name: str, kind: type[T]) -> T | None:
    """A saved value, None if there is none. Raises StoreFormatError for a damaged or newer file."""
    raw = store.read_document(name)
    if raw is None:
        return None
    try:
        saved = read(_Saved, orjson.loads(raw), name)
        if saved.version != _VERSION:
            raise StoreFormatError(path_of(store, name), f"version {saved.version}, this program reads {_VERSION}")
        return read(kind, orjson.loads(raw).get("state"), "state")
    except ValueError as error:  # no JSON, or JSON of another shape
        raise StoreFormatError(path_of(store, name), f"unreadable ({error}); remove the file to go on") from error


@dataclass(frozen=True, slots=True)
class _Saved:
    version: int


def save_state(store: ColdStore, name: str, state: Any, *, flush: bool = True) -> bytes:
    """Keep a state as a versioned document; gives its bytes. Raises StoreWriteError."""
    raw = orjson.dumps({"version": _VERSION, "state": state}, default=sorted)
    store.write_document(name, raw, flush=flush)
    return raw
