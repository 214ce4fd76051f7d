"""The neutral form of a piece of conversation. Dialects translate into it; rendering, terms and folding know only this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

WELL_FORMED = dict.fromkeys(range(55296, 57344), "�")


def well_formed(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD. Python strings hold no paired ones."""
    return text if text.isascii() else text.translate(WELL_FORMED) if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Text:
    """Words of a role (`user`, `assistant`, ...)."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning, where it stands in the open. It is archived with its step and not rendered."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is the raw text as the model wrote it; `call_id` may be empty or repeat in later turns."""

    name: str
    arguments: str
    call_id: str = ""

    def values(self) -> Iterator[str]:
        """The texts among its arguments; the arguments as they are if they are no JSON object."""
        try:
            found = orjson.loads(self.arguments)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            yield self.arguments
            return
        yield from (value for value in found.values() if isinstance(value, str))


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    text: str
    call_id: str = ""
    error: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, sound or file. `media_type` like `image/png`; `size` in bytes, 0 if it is a reference; `sha256` of the
    bytes or of the reference; `tokens` what it costs in a prompt."""

    kind: str
    media_type: str
    size: int
    sha256: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Anything a dialect does not know, as compact JSON."""

    kind: str
    text: str


Part = Text | Thinking | Call | Result | Media | Opaque


@dataclass(frozen=True, slots=True)
class Step:
    """A user message, or an assistant message with every tool result that answers it (ipcf.md 1).

    `payload` is the step's messages as received, one JSON list; `match_key` recognises a client's copy of it; `messages`
    how many messages it has; `timestamp` ISO 8601 or empty; `sanitized` what was taken out of it before, by kind.
    """

    step_id: int
    parts: tuple[Part, ...]
    payload: bytes
    match_key: str
    messages: int = 1
    timestamp: str = ""
    sanitized: Mapping[str, int] = field(default_factory=dict)
