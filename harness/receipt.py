"""What one dispatch did, in numbers. Receipts are values; the ledger is the list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them. `new_input` was neither read from nor written to its cache."""

    new_input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    @property
    def input(self) -> int:
        """The whole prompt."""
        return self.new_input + self.cache_write + self.cache_read


@dataclass(frozen=True, slots=True)
class Hydrated:
    """One step that came back: how much of it, for which terms, and how it stands in time."""

    step_id: int
    tokens: int
    whole_tokens: int
    artifact_sha256: str
    terms: tuple[str, ...]
    label: str
    newer_in_view: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """One step that was chosen and found no room in the turn's budget."""

    step_id: int
    tokens: int
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Redacted:
    """Secrets of one kind that were taken out of what this dispatch archived."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """One (turn, dispatch). All sizes in tokens of the harness's meter, times in milliseconds.

    `baseline` is the prompt without what was brought back (S), recounted from what was sent; `sent` the prompt as sent;
    `full` the caller's history whole. S follows S + new - folded_tokens + hot_change + client_change, where the last is 0
    unless the client itself dropped or changed what it had sent before. `outcome`: `answered`, `called` (the reply has
    tool calls, the turn goes on), `failed`, `partial` (the stream was left early), `unanswered`. `forgotten`: steps that
    were forgotten on request, that the client still sends, and that were left out.
    """

    turn: int
    dispatch: int
    mode: str
    outcome: str = "unanswered"
    full: int = 0
    baseline: int = 0
    sent: int = 0
    new: int = 0
    folded_tokens: int = 0
    hot: int = 0
    hot_change: int = 0
    client_change: int = 0
    archived: tuple[int, ...] = ()
    folded: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    hydrated: tuple[Hydrated, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    evicted: tuple[int, ...] = ()
    stripped: int = 0
    forgotten: tuple[int, ...] = ()
    redacted: tuple[Redacted, ...] = ()
    sibling: bool = False
    branch: str = ""
    faults: tuple[str, ...] = ()
    usage: Usage | None = None
    at: str = ""
    pre_ms: float = 0.0
    post_ms: float = 0.0

    @property
    def injected(self) -> int:
        """What this turn's block costs, its envelope included."""
        return self.sent - self.baseline

    def document(self) -> dict[str, Any]:
        """The receipt as a JSON object."""
        document: dict[str, Any] = orjson.loads(orjson.dumps(self))
        return document
