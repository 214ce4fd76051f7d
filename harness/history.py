"""A caller's history, read into steps: what belongs together, what is complete, and what each message costs."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import orjson

from harness.align import Shown
from harness.errors import HistoryError
from mmu.step import Call, Part, well_formed

_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_LONE = re.compile("[\ud800-\udfff]")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def compact(value: Any) -> bytes:
    """Compact JSON in the given key order. A lone surrogate, which UTF-8 cannot hold, stays as its JSON escape.

    Raises TypeError or ValueError for what JSON cannot say.
    """
    try:
        return orjson.dumps(value, option=_PLAIN)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates, integers beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def parse(raw: bytes) -> Any:
    """The inverse of `compact`: fresh values that share nothing."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw)


def _has_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return isinstance(value, float) and not math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as received: its compact JSON, its parts, its calls (ids), the calls it answers, and its tokens.

    `kind` is `system`, `user`, `assistant`, `tool`, or `ours` for a message that we had put in. `key` recognises a client's
    copy. `prompt` are the user's own words in it, harness tags cut. `joins`: it continues the assistant message before it
    (dialects that send one answer as several items). `boundary`: the service ignores what stands before it. `stripped`
    counts envelopes of ours that came back in it. `wire`: the bytes to send where those received would be refused.
    `wide`: it may hold integers beyond 64 bits, which the fast JSON reader would make floats.
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
        return b"[" + b",".join(message.raw for message in self.messages) + b"]"

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


class Reader:
    """Reads histories of one dialect. Messages seen before are known by their bytes and not parsed again."""

    def __init__(self, dialect: Dialect, limit: int = 2**25) -> None:
        self.dialect, self._limit = dialect, limit
        self._seen: dict[bytes, Message] = {}
        self._size = 0
        self._last = History((), ())
        self.sound = 0
        """How many messages of the last history the check of calls and results found in order; that check sets it."""

    def read(self, history: Sequence[Any]) -> History:
        """The history in steps. Raises HistoryError that names the message and what is wrong."""
        messages = tuple([self._known(item) or self._message(item, number) for number, item in enumerate(history)])
        if messages and messages[-1].kind == "ours":
            # Nobody sends us our own words as the newest message: somebody quotes them.
            body = plain(history[-1]) or {}
            messages = (*messages[:-1], self.dialect.read_message(body, compact(body), own=False))
        kept = _settled(self._last, messages)
        start = max((step.positions[-1] for step in kept), default=-1) + 1
        self._last = History(messages, (*kept, *group(messages[start:], start)), min(start, self.sound))
        self.sound = 0
        return self._last

    def _known(self, item: Any) -> Message | None:
        """A message that was read before, by its bytes; the short way for nearly all of a history."""
        if type(item) is not dict:
            return None
        try:
            return self._seen.get(orjson.dumps(item, option=_PLAIN))
        except (TypeError, orjson.JSONEncodeError):
            return None

    def _message(self, item: Any, number: int) -> Message:
        try:
            body = item if type(item) is dict else plain(item)
        except Exception as error:  # an SDK's object may raise anything
            raise HistoryError(f"message {number}", f"it cannot be read ({type(error).__name__}: {error})") from error
        if body is None:
            reason = f"a message is an object with a role, this is {type(item).__name__}"
            raise HistoryError(f"message {number}", reason)
        try:
            return self.message(body)
        except HistoryError as error:
            raise HistoryError(f"message {number}", str(error).removeprefix(": ")) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise HistoryError(f"message {number}", f"JSON cannot hold it ({error})") from error

    def _sendable(self, message: Message) -> Message:
        """The message with its wire form, where its own would be refused: empty texts, half characters."""
        body = message.fresh()
        sendable = self.dialect.filled(_well_formed(body) if b"\\ud" in message.raw else body)
        if sendable == body:
            return message
        return replace(message, wire=compact(sendable), tokens=self.dialect.tokens(sendable))

    def message(self, body: Mapping[str, Any]) -> Message:
        """One message. Raises HistoryError with `where` empty; TypeError or ValueError for what JSON cannot hold."""
        raw = compact(body)
        known = self._seen.get(raw)
        if known is not None:
            return known
        if b"null" in raw and _has_nan(body):  # the encoder writes null for it
            raise ValueError("a number in it is infinite or none")
        message = self.dialect.read_message(body, raw)
        if _LONG_NUMBER.search(message.raw):
            message = replace(message, wide=True)
        message = self._sendable(message)
        self._size += len(raw)
        if self._size > self._limit:  # a bound, not a policy: what was forgotten is parsed again
            self._seen.clear()
            self._size = len(raw)
        self._seen[raw] = message
        return message


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {key: _well_formed(item) for key, item in value.items()}
    return [_well_formed(item) for item in value] if isinstance(value, list) else value


def plain(item: Any) -> Mapping[str, Any] | None:
    """A message as a mapping: a dict as it is, an SDK's message object by its own dump; None for anything else."""
    if isinstance(item, Mapping):
        return dict(item)
    dump: Callable[..., Any] | None = getattr(item, "model_dump", None)
    dumped = dump(mode="json", exclude_none=True) if callable(dump) and not isinstance(item, type) else None
    return dumped if isinstance(dumped, dict) else None


def _settled(last: History, messages: Sequence[Message]) -> tuple[HistoryStep, ...]:
    """The steps of the last history that stand in this one as they were: they need not be grouped again.

    The two newest before the first difference may still change (a result can come), so they are not among them; and no
    other step's message may stand between theirs (a result that comes late), so that the rest can be grouped by itself.
    """
    same = len(last.messages)
    if messages[:same] != last.messages:  # the common case, that it only grew, is decided without a loop of ours
        pairs = enumerate(zip(last.messages, messages, strict=False))
        same = next((at for at, (before, now) in pairs if before is not now), min(same, len(messages)))
    reach, count, cuts = -1, 0, [0]
    for step in last.steps:
        if step.positions[0] > reach:
            cuts.append(count)  # everything before this step ends before it begins
        reach = max(reach, step.positions[-1])
        if reach >= same or step.open_calls:
            break
        count += 1
    return last.steps[: max(cut for cut in cuts if cut <= max(0, count - 2))]


class _Draft:
    """A step while its messages are being found."""

    def __init__(self, kind: str, position: int, calls: Sequence[str] = ()) -> None:
        self.kind, self.positions, self.open_calls = kind, [position], list(calls)
        self.answered: set[str] = set()


def group(messages: Sequence[Message], start: int = 0) -> Iterator[HistoryStep]:
    """The steps of some messages, in order. A result belongs to the nearest call of its id that is still open (B1), else
    to the newest exchange that it has already answered (an interim answer and a final one).

    `start` is the position of the first message.
    """
    drafts: list[_Draft] = []
    waiting: dict[str, list[_Draft]] = {}  # by call id, the newest last
    for position, message in enumerate(messages, start):
        newest = drafts[-1] if drafts else None
        if message.kind == "user":
            drafts.append(_Draft("user", position))
        elif message.kind == "assistant":
            if message.joins and newest and newest.kind == "exchange" and not newest.answered:
                newest.positions.append(position)
                newest.open_calls += message.calls
            else:
                newest = _Draft("exchange", position, message.calls)
                drafts.append(newest)
            for call in message.calls:
                waiting.setdefault(call, []).append(newest)
        elif message.kind == "tool":
            _place_answers(drafts, waiting, position, message)
    for draft in drafts:
        mine = tuple([messages[position - start] for position in draft.positions])
        growing = draft is drafts[-1] and mine[-1].joins
        yield HistoryStep(draft.kind, tuple(draft.positions), mine, tuple(draft.open_calls), growing)


def _place_answers(drafts: list[_Draft], waiting: dict[str, list[_Draft]], position: int, message: Message) -> None:
    owner = next((waiting[a][-1] for a in message.answers if waiting.get(a)), None)
    if owner is None:
        owner = next((d for d in reversed(drafts[-2:]) if any(a in d.answered for a in message.answers)), None)
    if owner is None:
        drafts.append(_Draft("orphan", position))
        return
    owner.positions.append(position)
    for answer in message.answers:
        if answer in owner.open_calls:
            owner.open_calls.remove(answer)
            waiting[answer].remove(owner)
        owner.answered.add(answer)
