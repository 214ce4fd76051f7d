"""What a reply says: whether it calls tools, and what it used. Reads provider objects, dicts, texts and stream chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.receipt import Usage


@dataclass(frozen=True, slots=True)
class Reply:
    """What the harness needs of an answer."""

    calls: bool = False
    usage: Usage | None = None


def read_reply(reply: Any) -> Reply:
    """A reply of any known shape; one of none counts as a plain answer without usage."""
    if isinstance(reply, Reply):
        return reply
    calls = any(_field(_field(choice, "message"), "tool_calls", "function_call") for choice in _choices(reply))
    calls = calls or bool(_field(reply, "tool_calls", "function_call"))
    return Reply(calls, read_usage(_field(reply, "usage")))


@dataclass
class StreamReply:
    """Gathers a reply from its chunks."""

    calls: bool = False
    usage: Usage | None = None

    def add(self, chunk: Any) -> None:
        """Take in one chunk."""
        self.calls = self.calls or any(
            bool(_field(_field(choice, "delta"), "tool_calls", "function_call")) for choice in _choices(chunk)
        )
        self.usage = read_usage(_field(chunk, "usage")) or self.usage

    def reply(self) -> Reply:
        """The reply as far as it came."""
        return Reply(self.calls, self.usage)


def _field(value: Any, *names: str) -> Any:
    """The first of some fields that has a value, of a mapping or an object."""
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found:
            return found
    return None


def _choices(reply: Any) -> list[Any]:
    choices = _field(reply, "choices")
    return list(choices) if isinstance(choices, list | tuple) else []


def _number(value: Any, name: str) -> int:
    found = _field(value, name)
    return found if isinstance(found, int) and 0 <= found < 2**53 else 0  # what is beyond is no count of tokens


def read_usage(usage: Any) -> Usage | None:
    """Usage in the shape of chat completions; `prompt_tokens` counts cached and newly cached tokens in."""
    if usage is None or _field(usage, "prompt_tokens", "completion_tokens", "total_tokens") is None:
        return None
    details = _field(usage, "prompt_tokens_details")
    read = _number(details, "cached_tokens") or _number(usage, "cache_read_input_tokens")
    write = _number(usage, "cache_creation_input_tokens")
    prompt = _number(usage, "prompt_tokens")
    return Usage(max(0, prompt - read - write), write, read, _number(usage, "completion_tokens"))
