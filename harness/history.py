"""A caller's history, read into steps: what belongs together, what is complete, and what each message costs."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import orjson

from harness.align import Shown
from mmu.step import Call, Part

PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_LONE = re.compile("[\ud800-\udfff]")


def compact(value: Any) -> bytes:
    """Compact JSON in the given key order. A lone surrogate, which UTF-8 cannot hold, stays as its JSON escape.

    Raises TypeError or ValueError for what JSON cannot say.
    """
    try:
        return orjson.dumps(value, option=PLAIN)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates, integers beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def parse(raw: bytes) -> Any:
    """The inverse of `compact`: fresh values that share nothing."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as received: its compact JSON, its parts, its calls (ids), the calls it answers, and its tokens.

    `kind` is `system`, `user`, `assistant`, `tool`, or `ours` for a message that we had put in. `key` recognises a client's
    copy. `prompt` are the user's own words in it, harness tags cut. `joins`: it continues the assistant message before it
    (dialects that send one answer as several items). `boundary`: the service ignores what stands before it. `stripped`
    counts envelopes of ours that came back in it. `wire`: the bytes to send where those received would be refused.
    `wide`: it may hold integers beyond 64 bits, which the fast JSON reader would make floats. `kept`: the bytes to archive
    where secrets were taken out; `redacted` counts those by kind, and `parts` and `key` are without them, too. `held`: it
    stays in the prompt, because what was taken out of it could not come back.
    """

    raw: bytes
    kind: str
    parts: tuple[Part, ...]
    calls: tuple[str, ...]
    answers: tuple[str, ...]
    key: bytes
    tokens: int
    prompt: str = ""
    joins: bool = False
    boundary: bool = False
    stripped: int = 0
    wire: bytes = field(default=b"", repr=False)
    wide: bool = False
    kept: bytes = field(default=b"", repr=False)
    redacted: tuple[tuple[str, int], ...] = ()
    held: bool = False

    def fresh(self) -> dict[str, Any]:
        """The message as it is sent, as plain values that nobody else holds."""
        raw = self.wire or self.raw
        body: dict[str, Any] = json.loads(raw) if self.wide else parse(raw)
        return body


@dataclass(frozen=True)
class HistoryStep:
    """Messages that fold together: a user message, or an assistant message with its results. `positions` in the history."""

    kind: str
    positions: tuple[int, ...]
    messages: tuple[Message, ...]
    open_calls: tuple[str, ...] = ()
    growing: bool = False

    @property
    def complete(self) -> bool:
        """Whether every call has its answer, and no further item of the same answer can come (`growing`)."""
        return not self.open_calls and not self.growing and self.kind != "orphan"

    @cached_property
    def match_key(self) -> str:
        """What a client's copy is recognised by: role, text, calls and results, whatever else changed."""
        return hashlib.sha256(b"".join(message.key for message in self.messages)).hexdigest()[:32]

    @cached_property
    def shown(self) -> Shown:
        """What alignment asks of it."""
        return Shown(self.match_key, len(self.messages))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all its messages."""
        return tuple(part for message in self.messages for part in message.parts)

    @property
    def payload(self) -> bytes:
        """The messages as received, one JSON list."""
        return b"[" + b",".join(message.kept or message.raw for message in self.messages) + b"]"

    @property
    def sanitized(self) -> dict[str, int]:
        """How many secrets of each kind are not in its payload."""
        found: Counter[str] = Counter()
        for message in self.messages:
            found.update(dict(message.redacted))
        return dict(found)

    @property
    def held(self) -> bool:
        """Whether it never folds."""
        return any(message.held for message in self.messages)

    @cached_property
    def tokens(self) -> int:
        """What its messages cost in a prompt."""
        return sum(message.tokens for message in self.messages)

    def call_names(self) -> dict[str, str]:
        """The tool's name of each call id."""
        return {part.call_id: part.name for part in self.parts if isinstance(part, Call)}


@dataclass(frozen=True)
class History:
    """All messages of a request, and the steps they form. System and developer messages belong to no step.

    The first `settled` messages stood in the history before as they are, and were found in order there.
    """

    messages: tuple[Message, ...]
    steps: tuple[HistoryStep, ...]
    settled: int = 0

    @property
    def tokens(self) -> int:
        """What all messages cost in a prompt."""
        return sum(message.tokens for message in self.messages)

    @cached_property
    def opening(self) -> tuple[int, int] | None:
        """What opened the turn: the newest message with words of the user's own, as (step, message position).

        A message that only carries results or a harness's reminders opens no turn. Without any, the newest user message.
        """
        for words in (True, False):
            for at in range(len(self.steps) - 1, -1, -1):
                step = self.steps[at]
                for position, message in zip(reversed(step.positions), reversed(step.messages), strict=True):
                    if message.prompt if words else message.kind == "user":
                        return at, position
        return None

    @cached_property
    def boundary(self) -> int:
        """The position of the newest message before which the service ignores everything; 0 without one."""
        return next((p for p in range(len(self.messages) - 1, 0, -1) if self.messages[p].boundary), 0)


class Dialect(Protocol):
    """Translates one provider's messages. No rule about folding lives in it."""

    name: str
    one_answer_message: bool
    """Whether all results of an assistant message must stand in one message."""
    unique_calls: bool
    """Whether a call id may stand in a request only once."""
    free_order: bool
    """Whether other items may stand between a call and its result."""

    def read_message(self, body: Mapping[str, Any], raw: bytes, *, own: bool = True) -> Message:
        """A message from its plain values; with `own` our envelopes are taken out. Raises HistoryError with `where` empty."""

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What a message costs in a prompt."""

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """A user message with the block before its own text (and behind results, which come first)."""

    def with_tail(self, bodies: list[dict[str, Any]], block: str) -> list[dict[str, Any]]:
        """The messages at the end of an exchange with the block behind them."""

    def with_hot_lines(self, bodies: list[dict[str, Any]], at: int, text: str) -> None:
        """Put the hot lines into a request at a place, joined with the message there if roles must alternate."""

    def with_results(self, body: dict[str, Any], line: Callable[[str], str]) -> dict[str, Any]:
        """A message with the text of each result replaced by a line (given its call id); all else untouched."""

    def without_answers(self, body: dict[str, Any], gone: Collection[int]) -> dict[str, Any] | None:
        """A message without some of its answers (by place among them), None if nothing is left."""

    def answer(self, call_id: str, text: str, caller: dict[str, Any]) -> dict[str, Any]:
        """A message of ours that answers a call of the message `caller`."""

    def joined_answers(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answer messages as the provider wants them: one by one, or in one message."""

    def renamed(self, body: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """A message with its call ids (made or answered, in order) replaced."""

    def filled(self, body: dict[str, Any]) -> dict[str, Any]:
        """A message without empty texts that its provider refuses; a filler stands where nothing else is left."""

    def with_mark(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """A message with a cache mark at its end, None if it cannot carry one."""
