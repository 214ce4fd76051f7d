"""OpenAI chat messages: roles system, developer, user, assistant, tool (and the old function). session-formats.md 3."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.errors import HistoryError
from harness.history import Message, compact
from mmu.envelope import place, strip
from mmu.step import Call, Media, Opaque, Part, Result, Text
from mmu.tokens import Meter, image_size, image_tokens

_KINDS = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_OVERHEAD = 4  # tokens of a message's frame in the chat format
_TEXT_TYPES = ("text", "input_text", "output_text")
_THINKING = ("reasoning_content", "reasoning")


class OpenAIChat:
    """The dialect of /v1/chat/completions. `session` is needed to know our own blocks when they come back."""

    name = "openai-chat"

    def __init__(self, session: str, meter: Meter) -> None:
        self._session, self._meter = session, meter

    def read_message(self, body: Mapping[str, Any], raw: bytes) -> Message:
        """See `Dialect.read_message`."""
        role = body.get("role")
        kind = _KINDS.get(role) if isinstance(role, str) else None
        if kind is None:
            raise HistoryError("", f"role {role!r} is none of {', '.join(_KINDS)}")
        body, stripped = self._without_blocks(body) if kind == "user" else (body, 0)
        if stripped and not body.get("content"):
            kind = "ours"  # nothing of the user's is left: a message that we had put in
        content = tuple(_content(body, str(role)))
        calls = tuple(_calls(body)) if kind == "assistant" else ()
        answers = _answered(body) if kind == "tool" else None
        if kind == "tool":
            content = tuple(_results(content, answers or ""))
        return Message(
            raw=compact(body) if stripped else raw,
            kind=kind,
            parts=(*content, *calls),
            calls=tuple(call.call_id for call in calls),
            answers=answers,
            key=_key(kind, (*content, *calls)),
            tokens=self.tokens(body),
            stripped=stripped,
        )

    def _without_blocks(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
        content = body.get("content")
        if isinstance(content, str):
            text, count = strip(content, self._session)
            return ({**body, "content": text}, count) if count else (body, 0)
        if not isinstance(content, list):
            return body, 0
        kept, removed = [], 0
        for part in content:
            words = part.get("text") if isinstance(part, Mapping) else None
            if not isinstance(words, str):
                kept.append(part)
                continue
            rest, count = strip(words, self._session)
            removed += count
            if not count:
                kept.append(part)
            elif rest:
                kept.append({**part, "text": rest})
        return ({**body, "content": kept}, removed) if removed else (body, 0)

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What a message costs in a prompt: every text that is sent, calls, names and pictures included."""
        count = self._meter.count
        total = _OVERHEAD
        for part in _content(body, "user"):
            match part:
                case Text(_, text) | Opaque(_, text):
                    total += count(text)
                case Media():
                    total += part.tokens
        for call in _calls(body):
            total += count(call.name) + count(call.arguments) + _OVERHEAD
        for field in _THINKING:
            if isinstance(thinking := body.get(field), str):
                total += count(thinking)
        return total

    def user_message(self, text: str) -> dict[str, Any]:
        """See `Dialect.user_message`."""
        return {"role": "user", "content": text}

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """See `Dialect.with_block`. A text stays a text, a list gets one more part in front."""
        content = body.get("content")
        if isinstance(content, list):
            return {**body, "content": [{"type": "text", "text": block}, *content]}
        return {**body, "content": place(block, content or "")}


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
    if isinstance(text, str) and (kind in _TEXT_TYPES or kind == "refusal"):
        return Text(role, text)
    if kind == "image_url":
        image = part.get("image_url")
        url, detail = (image.get("url"), image.get("detail")) if isinstance(image, Mapping) else (image, None)
        return _media("image", str(url or ""), detail=str(detail) if detail else None)
    if kind == "input_audio" and isinstance(audio := part.get("input_audio"), Mapping):
        return _media("audio", str(audio.get("data", "")), f"audio/{audio.get('format', 'unknown')}")
    if kind == "file" and isinstance(file := part.get("file"), Mapping):
        return _media("file", str(file.get("file_data") or file.get("file_id") or ""), "application/octet-stream")
    return Opaque(kind, compact({k: v for k, v in part.items() if k != "cache_control"}).decode())


def _media(kind: str, source: str, media_type: str = "", *, detail: str | None = None) -> Media:
    """A picture, sound or file from a data URI, base64 text or a reference. Broken base64 counts as a reference."""
    head, comma, encoded = source.partition(",")
    inline = head.startswith("data:") and bool(comma)
    if inline:
        media_type = head[5:].partition(";")[0] or media_type
    try:
        data = base64.b64decode(encoded if inline else source, validate=True) if inline or kind != "image" else b""
    except (binascii.Error, ValueError):
        data = b""
    digest = hashlib.sha256(data or source.encode("utf-8", "surrogatepass")).hexdigest()
    size = image_size(data) if kind == "image" and data else None
    if kind == "image":
        width, height = size or (None, None)
        tokens = image_tokens(width, height, detail)
    else:
        tokens = len(data) // 1000 if kind == "audio" else len(data) // 60
    return Media(kind, media_type or f"{kind}/unknown", len(data), digest, tokens)


def _calls(body: Mapping[str, Any]) -> Iterator[Call]:
    calls = body.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise HistoryError("", f"tool_calls is {type(calls).__name__}, a list was expected")
    for number, call in enumerate(calls):
        detail = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if not isinstance(detail, Mapping) or not isinstance(detail.get("name"), str):
            raise HistoryError("", f"tool call {number} has no function with a name")
        arguments = detail.get("arguments", detail.get("input", ""))
        yield Call(detail["name"], _text(arguments), str(call.get("id") or ""))
    old = body.get("function_call")
    if isinstance(old, Mapping):
        yield Call(str(old.get("name", "")), _text(old.get("arguments", "")), f"function:{old.get('name', '')}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact(value).decode()


def _answered(body: Mapping[str, Any]) -> str:
    if body.get("role") == "function":
        return f"function:{body.get('name', '')}"
    return str(body.get("tool_call_id") or "")


def _results(content: tuple[Part, ...], call_id: str) -> Iterator[Part]:
    texts = [part.text for part in content if isinstance(part, Text)]
    yield Result("\n".join(texts), call_id)
    yield from (part for part in content if not isinstance(part, Text))


def _key(kind: str, parts: tuple[Part, ...]) -> bytes:
    """What a message is recognised by. A string equals one text block; cache marks, thinking and ids do not count."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        match part:
            case Text(_, text) | Result(text):
                fields: tuple[str, ...] = ("text", text)
            case Call(name, arguments):
                fields = ("call", name, _arguments(arguments))
            case Media():
                fields = ("media", part.sha256)
            case Opaque(name, text):
                fields = ("opaque", name, text)
            case _:
                continue
        for field in fields:
            data = field.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
    return digest.digest()


def _arguments(text: str) -> str:
    """Arguments in one spelling: clients write the same JSON with other blanks."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, TypeError):
        return text
