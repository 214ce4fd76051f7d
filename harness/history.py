"""A caller's history, read into steps: what belongs together, what is complete, and what each message costs."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import orjson

from harness.errors import HistoryError
from mmu.step import Part, Text

_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_LONE = re.compile("[\ud800-\udfff]")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def compact(value: Any) -> bytes:
    """Compact JSON in the given key order. A lone surrogate, which UTF-8 cannot hold, stays as its JSON escape.

    Raises TypeError or ValueError for what JSON cannot say.
    """
    try:
        raw = orjson.dumps(value, option=_PLAIN)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates, integers beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
    if b"null" in raw and _has_nan(value):  # the encoder above writes null for it
        raise ValueError("a number in it is infinite or none")
    return raw


def _has_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return isinstance(value, float) and not math.isfinite(value)


def parse(raw: bytes) -> Any:
    """The inverse of `compact`: fresh values that share nothing."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as received: its compact JSON, its parts, its calls (ids) or the call it answers, and its tokens.

    `key` recognises a client's copy; `kind` is `system`, `user`, `assistant`, `tool`, or `ours` for a message
    that we had put in; `stripped` counts envelopes of ours that came back in it; `wide` says that it may hold integers
    beyond 64 bits, which the fast JSON reader would make floats.
    """

    raw: bytes
    kind: str
    parts: tuple[Part, ...]
    calls: tuple[str, ...]
    answers: str | None
    key: bytes
    tokens: int
    stripped: int = 0
    wide: bool = False

    def fresh(self) -> dict[str, Any]:
        """The message as plain values that nobody else holds."""
        body: dict[str, Any] = json.loads(self.raw) if self.wide else parse(self.raw)
        return body


@dataclass(frozen=True)
class HistoryStep:
    """Messages that fold together: a user message, or an assistant message with its results. `positions` in the history."""

    kind: str
    positions: tuple[int, ...]
    messages: tuple[Message, ...]
    open_calls: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every call has its answer."""
        return not self.open_calls and self.kind != "orphan"

    @cached_property
    def match_key(self) -> str:
        """What a client's copy is recognised by: role, text, calls and results, whatever else changed."""
        return hashlib.sha256(b"".join(message.key for message in self.messages)).hexdigest()[:32]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all its messages."""
        return tuple(part for message in self.messages for part in message.parts)

    @property
    def payload(self) -> bytes:
        """The messages as received, one JSON list."""
        return b"[" + b",".join(message.raw for message in self.messages) + b"]"

    @cached_property
    def tokens(self) -> int:
        """What its messages cost in a prompt."""
        return sum(message.tokens for message in self.messages)


@dataclass(frozen=True)
class History:
    """All messages of a request, and the steps they form. System and developer messages belong to no step."""

    messages: tuple[Message, ...]
    steps: tuple[HistoryStep, ...]

    @property
    def tokens(self) -> int:
        """What all messages cost in a prompt."""
        return sum(message.tokens for message in self.messages)

    @property
    def opening(self) -> int | None:
        """The position, among the steps, of the newest user message: it opened the turn. None without one."""
        return next((i for i in range(len(self.steps) - 1, -1, -1) if self.steps[i].kind == "user"), None)


class Dialect(Protocol):
    """Translates one provider's messages. No rule about folding lives in it."""

    name: str

    def read_message(self, body: Mapping[str, Any], raw: bytes) -> Message:
        """A message from its plain values. Raises HistoryError with `where` empty."""

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What a message costs in a prompt."""

    def user_message(self, text: str) -> dict[str, Any]:
        """A user message of ours."""

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """A user message with the block before its own text."""


class Reader:
    """Reads histories of one dialect. Messages seen before are known by their bytes and not parsed again."""

    def __init__(self, dialect: Dialect, limit: int = 2**25) -> None:
        self.dialect, self._limit = dialect, limit
        self._seen: dict[bytes, Message] = {}
        self._size = 0
        self._last = History((), ())

    def read(self, history: Sequence[Any]) -> History:
        """The history in steps. Raises HistoryError that names the message and what is wrong."""
        messages = tuple([self._message(item, number) for number, item in enumerate(history)])
        kept = _settled(self._last, messages)
        start = kept[-1].positions[-1] + 1 if kept else 0
        self._last = History(messages, (*kept, *group(messages[start:], start)))
        return self._last

    def _message(self, item: Any, number: int) -> Message:
        try:
            body = item if type(item) is dict else plain(item)
        except Exception as error:  # an SDK's object may raise anything
            raise HistoryError(f"message {number}", f"it cannot be read ({type(error).__name__}: {error})") from error
        if body is None:
            reason = f"a message is an object with a role, this is {type(item).__name__}"
            raise HistoryError(f"message {number}", reason)
        try:
            raw = compact(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise HistoryError(f"message {number}", f"JSON cannot hold it ({error})") from error
        known = self._seen.get(raw)
        if known is not None:
            return known
        try:
            message = self.dialect.read_message(body, raw)
        except HistoryError as error:
            raise HistoryError(f"message {number}", str(error).removeprefix(": ")) from None
        if _LONG_NUMBER.search(message.raw):
            message = replace(message, wide=True)
        self._size += len(raw)
        if self._size > self._limit:  # a bound, not a policy: what was forgotten is parsed again
            self._seen.clear()
            self._size = len(raw)
        self._seen[raw] = message
        return message


def plain(item: Any) -> Mapping[str, Any] | None:
    """A message as a mapping: a dict as it is, an SDK's message object by its own dump; None for anything else."""
    if isinstance(item, Mapping):
        return dict(item)
    dump: Callable[..., Any] | None = getattr(item, "model_dump", None)
    dumped = dump(mode="json", exclude_none=True) if callable(dump) and not isinstance(item, type) else None
    return dumped if isinstance(dumped, dict) else None


def _settled(last: History, messages: Sequence[Message]) -> tuple[HistoryStep, ...]:
    """The steps of the last history that stand in this one as they were: they need not be grouped again.

    The newest step before the first difference may still change (a result can come), so it is not among them.
    """
    same = 0
    for before, now in zip(last.messages, messages, strict=False):
        if before is not now:
            break
        same += 1
    count = 0
    for step in last.steps:
        if step.positions[-1] >= same or step.open_calls:
            break
        count += 1
    return last.steps[: max(0, count - 1)]


def group(messages: Sequence[Message], start: int = 0) -> Iterator[HistoryStep]:
    """The steps of some messages, in order. A result belongs to the nearest call of its id that is still open (B1).

    `start` is the position of the first message.
    """
    drafts: list[tuple[str, list[int], list[str]]] = []
    for position, message in enumerate(messages, start):
        if message.kind == "user":
            drafts.append(("user", [position], []))
        elif message.kind == "assistant":
            drafts.append(("exchange", [position], list(message.calls)))
        elif message.kind == "tool":
            owner = next((d for d in reversed(drafts) if message.answers in d[2]), None)
            if owner is None:
                drafts.append(("orphan", [position], []))
            else:
                owner[1].append(position)
                owner[2].remove(str(message.answers))
    for kind, positions, open_calls in drafts:
        mine = tuple([messages[position - start] for position in positions])
        yield HistoryStep(kind, tuple(positions), mine, tuple(open_calls))


def prompt_of(step: HistoryStep) -> str:
    """The words of a user's message, for the scan."""
    return "\n".join(part.text for part in step.parts if isinstance(part, Text))
