"""Reading a caller's messages: each once, known by its bytes from then on, without its secrets where that is wanted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson

from harness.errors import HistoryError
from harness.grouping import group, settled
from harness.history import PLAIN, Dialect, History, Message, compact
from mmu.step import well_formed
from store import redact_values

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
Redact = bool | Literal["fold"]
"""Whether secrets are taken out of what is archived; with `fold`, whether a step that held one may fold all the same."""


class Reader:
    """Reads histories of one dialect. Messages seen before are known by their bytes and not parsed again."""

    def __init__(self, dialect: Dialect, limit: int = 2**25, redact: Redact = False) -> None:
        self.dialect, self._limit, self._redact = dialect, limit, redact
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
            raw = compact(body)
            self._seen[raw] = self.dialect.read_message(body, raw, own=False)  # and stays a quotation
            messages = (*messages[:-1], self._seen[raw])
        kept = settled(self._last, messages)
        start = max((step.positions[-1] for step in kept), default=-1) + 1
        self._last = History(messages, (*kept, *group(messages[start:], start)), min(start, self.sound))
        self.sound = 0
        return self._last

    def _known(self, item: Any) -> Message | None:
        """A message that was read before, by its bytes; the short way for nearly all of a history."""
        if type(item) is not dict:
            return None
        try:
            return self._seen.get(orjson.dumps(item, option=PLAIN))
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

    def _without_secrets(self, message: Message, body: Mapping[str, Any]) -> Message:
        """The message as it came, and as it is archived where it holds a secret."""
        clean, found = redact_values(body)
        if not found:
            return message
        raw = compact(clean)
        kept = self.dialect.read_message(clean, raw)
        counts = tuple(sorted(found.items()))
        return replace(
            message, parts=kept.parts, key=kept.key, kept=kept.raw, redacted=counts, held=self._redact != "fold"
        )

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
        message = self._sendable(self._without_secrets(message, body) if self._redact else message)
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


def _has_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return isinstance(value, float) and not math.isfinite(value)
