"""OpenAI chat messages: roles system, developer, user, assistant, tool (and the old function). session-formats.md 3."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.dialects.common import MESSAGE_TOKENS, as_text, match_key, media, own_words, without_envelopes
from harness.errors import HistoryError
from harness.history import Message, compact
from mmu.envelope import place
from mmu.step import Call, Media, Opaque, Part, Result, Text
from mmu.tokens import Meter

_KINDS = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_TYPES = ("text", "input_text", "output_text", "refusal")
_THINKING = ("reasoning_content", "reasoning")


class OpenAIChat:
    """The dialect of /v1/chat/completions. `session` is needed to know our own envelopes when they come back."""

    name = "openai-chat"
    one_answer_message = False
    free_order = False
    unique_calls = False

    def __init__(self, session: str, meter: Meter) -> None:
        self._session, self._meter = session, meter

    def read_message(self, body: Mapping[str, Any], raw: bytes, *, own: bool = True) -> Message:
        """See `Dialect.read_message`."""
        role = body.get("role")
        kind = _KINDS.get(role) if isinstance(role, str) else None
        if kind is None:
            raise HistoryError("", f"role {role!r} is none of {', '.join(_KINDS)}")
        body, stripped = without_envelopes(body, self._session) if kind == "user" and own else (body, 0)
        if stripped and not body.get("content"):
            kind = "ours"  # nothing of the user's is left: a message that we had put in
        parts = tuple(_content(body, str(role)))
        answers: tuple[str, ...] = ()
        if kind == "tool":
            answers = (_answered(body),)
            parts = (Result("\n".join(_texts(parts)), answers[0]), *(p for p in parts if not isinstance(p, Text)))
        calls = tuple(_calls(body)) if kind == "assistant" else ()
        return Message(
            raw=compact(body) if stripped else raw,
            kind=kind,
            parts=(*parts, *calls),
            calls=tuple(call.call_id for call in calls),
            answers=answers,
            key=match_key(kind, (*parts, *calls)),
            tokens=self.tokens(body),
            prompt=own_words(_texts(parts)) if kind == "user" else "",
            stripped=stripped,
        )

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What a message costs in a prompt: every text that is sent, calls, names and pictures included."""
        count = self._meter.count
        total = MESSAGE_TOKENS
        for part in _content(body, "user"):
            match part:
                case Text(_, text) | Opaque(_, text):
                    total += count(text)
                case Media():
                    total += part.tokens
        for call in _calls(body):
            total += count(call.name) + count(call.arguments) + MESSAGE_TOKENS
        for field in _THINKING:
            if isinstance(thinking := body.get(field), str):
                total += count(thinking)
        return total

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """See `Dialect.with_block`. A text stays a text, a list gets one more part in front."""
        content = body.get("content")
        if isinstance(content, list):
            return {**body, "content": [{"type": "text", "text": block}, *content]}
        return {**body, "content": place(block, content or "")}

    def with_tail(self, bodies: list[dict[str, Any]], block: str) -> list[dict[str, Any]]:
        """See `Dialect.with_tail`."""
        return [*bodies, {"role": "user", "content": block}]

    def with_hot_lines(self, bodies: list[dict[str, Any]], at: int, text: str) -> None:
        """See `Dialect.with_hot_lines`."""
        bodies.insert(at, {"role": "user", "content": text})

    def with_results(self, body: dict[str, Any], line: Callable[[str], str]) -> dict[str, Any]:
        """See `Dialect.with_results`."""
        return {**body, "content": line(_answered(body))}

    def without_answers(self, body: dict[str, Any], gone: Collection[int]) -> dict[str, Any] | None:
        """See `Dialect.without_answers`. A message holds one answer."""
        return None if gone else body

    def answer(self, call_id: str, text: str, caller: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.answer`."""
        if call_id.startswith("function:"):
            return {"role": "function", "name": call_id.removeprefix("function:"), "content": text}
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def joined_answers(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """See `Dialect.joined_answers`."""
        return bodies

    def renamed(self, body: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """See `Dialect.renamed`."""
        if body.get("role") == "tool":
            return {**body, "tool_call_id": names[0]}
        calls = body.get("tool_calls") or []
        return {**body, "tool_calls": [{**call, "id": name} for call, name in zip(calls, names, strict=False)]}

    def filled(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.filled`. A part with an empty text is refused, an empty string is not."""
        content = body.get("content")
        if not isinstance(content, list) or all(not _is_empty(part) for part in content):
            return body
        kept = [part for part in content if not _is_empty(part)]
        return {**body, "content": kept or [{"type": "text", "text": EMPTY}]}

    def with_mark(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """See `Dialect.with_mark`. Marks stand on content parts."""
        content = body.get("content")
        if isinstance(content, str) and content:
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content or not isinstance(content[-1], dict):
            return None
        return {**body, "content": [*content[:-1], {**content[-1], "cache_control": {"type": "ephemeral"}}]}


EMPTY = "(empty)"


def _is_empty(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _TEXT_TYPES and part.get("text") == ""


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


def _content(body: Mapping[str, Any], role: str) -> Iterator[Part]:
    content = body.get("content")
    if content is None:
        refusal = body.get("refusal")
        if isinstance(refusal, str):
            yield Text(role, refusal)
    elif isinstance(content, str):
        yield Text(role, content)
    elif isinstance(content, list | tuple):
        for number, part in enumerate(content):
            if isinstance(part, str):
                yield Text(role, part)
            elif isinstance(part, Mapping):
                yield _part(part, role)
            else:
                raise HistoryError("", f"content part {number} is {type(part).__name__}, an object was expected")
    else:
        raise HistoryError("", f"content is {type(content).__name__}; a text, a list of parts or null was expected")


def _part(part: Mapping[str, Any], role: str) -> Part:
    kind = str(part.get("type", "text"))
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str) and kind in _TEXT_TYPES:
        return Text(role, text)
    if kind == "image_url":
        image = part.get("image_url")
        url, detail = (image.get("url"), image.get("detail")) if isinstance(image, Mapping) else (image, None)
        return media("image", str(url or ""), detail=str(detail) if detail else None)
    if kind == "input_audio" and isinstance(audio := part.get("input_audio"), Mapping):
        return media("audio", str(audio.get("data", "")), f"audio/{audio.get('format', 'unknown')}", encoded=True)
    if kind == "file" and isinstance(file := part.get("file"), Mapping):
        data = file.get("file_data")
        return media("file", str(data or file.get("file_id") or ""), "application/octet-stream", encoded=bool(data))
    return Opaque(kind, compact({k: v for k, v in part.items() if k != "cache_control"}).decode())


def _calls(body: Mapping[str, Any]) -> Iterator[Call]:
    calls = body.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise HistoryError("", f"tool_calls is {type(calls).__name__}, a list was expected")
    for number, call in enumerate(calls):
        detail = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if not isinstance(detail, Mapping) or not isinstance(detail.get("name"), str):
            raise HistoryError("", f"tool call {number} has no function with a name")
        arguments = detail.get("arguments", detail.get("input", ""))
        yield Call(detail["name"], as_text(arguments), str(call.get("id") or ""))
    old = body.get("function_call")
    if isinstance(old, Mapping):
        yield Call(str(old.get("name", "")), as_text(old.get("arguments", "")), f"function:{old.get('name', '')}")


def _answered(body: Mapping[str, Any]) -> str:
    if body.get("role") == "function":
        return f"function:{body.get('name', '')}"
    return str(body.get("tool_call_id") or "")
