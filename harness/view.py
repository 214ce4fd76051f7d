"""What the prompt holds at the moment: which steps are folded, their hot lines, and the blocks of the open turn.

Two documents of the session hold it, so that another process sends the same bytes: `view.json` changes when something
folds, `open_turn.json` with each dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from harness.receipt import Hydrated
from mmu.folding import HotLines
from store import ColdStore, StoreFormatError

VIEW_FILE, TURN_FILE = "view.json", "open_turn.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class View:
    """What left the prompt: folded step ids, and what stands for them."""

    folded: frozenset[int] = frozenset()
    hot: HotLines = field(default_factory=HotLines)

    @classmethod
    def load(cls, store: ColdStore) -> Self:
        """The view as it was saved. Raises StoreFormatError for a damaged or newer file."""
        document = _load(store, VIEW_FILE)
        if document is None:
            return cls()
        try:
            lines = tuple((step_id, line) for step_id, line in document["hot"].pop("lines"))
            return cls(frozenset(document["folded"]), HotLines(lines, **document["hot"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreFormatError(_path(store, VIEW_FILE), f"unreadable ({error!r})") from error

    def save(self, store: ColdStore) -> None:
        """Keep it. Raises StoreWriteError."""
        _save(store, VIEW_FILE, self)


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """The turn that is being answered, and what was brought back for it.

    `opening` is the step id of its user message; `block` the text placed there; `left` what remains of its budget;
    `dispatches` how many there were in this turn. Of the last one: `baseline` is S, `hot` what its hot lines cost, `beside`
    what was sent outside of steps, `open_tokens` its steps that were not complete, `missing` the known steps that its
    history did not show.
    """

    number: int = 0
    dispatches: int = 0
    opening: int | None = None
    block: str = ""
    hydrated: tuple[Hydrated, ...] = ()
    left: int = 0
    baseline: int = 0
    hot: int = 0
    beside: int = 0
    open_tokens: int = 0
    missing: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_open(self) -> bool:
        """Whether an answer is still to come."""
        return self.opening is not None

    def begin(self, opening: int | None, budget: int) -> Self:
        """The next turn, opened by a user message, with nothing brought back yet."""
        return replace(self.evicted(), number=self.number + 1, dispatches=0, opening=opening, left=budget)

    def evicted(self) -> Self:
        """The turn is over: nothing of it stays in the prompt."""
        return replace(self, opening=None, block="", hydrated=(), left=0)

    @classmethod
    def load(cls, store: ColdStore) -> Self:
        """The turn as it was saved; a file that a power cut left empty counts as none. Raises as `View.load`."""
        document = _load(store, TURN_FILE) if store.read_document(TURN_FILE) else None
        if document is None:
            return cls()
        try:
            hydrated = tuple(Hydrated(**{**h, "terms": tuple(h["terms"])}) for h in document.pop("hydrated"))
            return cls(**{**document, "hydrated": hydrated, "missing": frozenset(document["missing"])})
        except (KeyError, TypeError) as error:
            raise StoreFormatError(_path(store, TURN_FILE), f"unreadable ({error!r})") from error

    def save(self, store: ColdStore) -> None:
        """Keep it. Raises StoreWriteError. Not flushed: a turn lost with the power is planned anew, to the same bytes."""
        _save(store, TURN_FILE, self, flush=False)


def _path(store: ColdStore, name: str) -> Any:
    folder = getattr(store, "folder", None)
    return folder / name if folder is not None else name


def _load(store: ColdStore, name: str) -> dict[str, Any] | None:
    raw = store.read_document(name)
    if raw is None:
        return None
    try:
        document = orjson.loads(raw)
        version, state = document["version"], document.get("state")
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise StoreFormatError(_path(store, name), f"unreadable ({error})") from error
    if version != _VERSION:
        raise StoreFormatError(_path(store, name), f"version {version!r}, this program reads {_VERSION}")
    if not isinstance(state, dict):
        raise StoreFormatError(_path(store, name), "unreadable (no state in it)")
    return state


def _save(store: ColdStore, name: str, state: View | OpenTurn, *, flush: bool = True) -> None:
    store.write_document(name, orjson.dumps({"version": _VERSION, "state": state}, default=sorted), flush=flush)
