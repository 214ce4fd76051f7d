"""Translators between a provider's messages and the neutral step model, and how to tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from harness.dialects.anthropic import AnthropicMessages
from harness.dialects.openai_chat import OpenAIChat
from harness.dialects.openai_responses import OpenAIResponses
from harness.history import Dialect
from mmu.tokens import Meter

DialectName = Literal["openai-chat", "openai-responses", "anthropic"]

_DIALECTS: Mapping[str, Callable[[str, Meter], Dialect]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": AnthropicMessages,
}
_ANTHROPIC_BLOCKS = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "server_tool_use", "compaction")
)


def make(name: DialectName, session: str, meter: Meter) -> Dialect:
    """A dialect by its name, for a session."""
    return _DIALECTS[name](session, meter)


_CHAT_PARTS = frozenset(("image_url", "input_audio"))
_RESPONSES_PARTS = frozenset(("input_text", "output_text", "input_image"))


def detect(history: Iterable[Any], usual: DialectName) -> DialectName:
    """Which dialect a history is written in, by the first message that only one of them has; `usual` if none tells."""
    return next((told for message in history if (told := _told_by(message))), usual)


def _told_by(message: Any) -> DialectName | None:
    if not isinstance(message, Mapping):
        return None
    if message.get("type") == "message" or ("role" not in message and isinstance(message.get("type"), str)):
        return "openai-responses"
    if message.get("role") in ("tool", "function") or message.get("tool_calls"):
        return "openai-chat"
    content = message.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    kinds = {part.get("type") for part in parts}
    if kinds & _ANTHROPIC_BLOCKS or any(part.get("type") == "image" and "source" in part for part in parts):
        return "anthropic"
    if kinds & _CHAT_PARTS:
        return "openai-chat"
    return "openai-responses" if kinds & _RESPONSES_PARTS else None
