"""Anthropic messages: roles user, assistant and (newer) system; content of blocks. session-formats.md 4."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.dialects.common import MESSAGE_TOKENS, match_key, media, own_words, without_envelopes
from harness.errors import HistoryError
from harness.history import Message, compact
from mmu.step import Call, Media, Opaque, Part, Result, Text, Thinking
from mmu.tokens import Meter

_ROLES = ("user", "assistant", "system")
_NO_MARK = ("thinking", "redacted_thinking")
EMPTY = "(empty)"


class AnthropicMessages:
    """The dialect of /v1/messages. `session` is needed to know our own envelopes when they come back."""

    name = "anthropic"
    one_answer_message = True
    free_order = False
    unique_calls = False

    def __init__(self, session: str, meter: Meter) -> None:
        self._session, self._meter = session, meter

    def read_message(self, body: Mapping[str, Any], raw: bytes, *, own: bool = True) -> Message:
        """See `Dialect.read_message`."""
        role = body.get("role")
        if role not in _ROLES:
            raise HistoryError("", f"role {role!r} is none of {', '.join(_ROLES)}")
        body, stripped = without_envelopes(body, self._session) if role == "user" and own else (body, 0)
        parts = tuple(part for block in _blocks(body) for part in _parts(block, str(role)))
        answers = tuple(part.call_id for part in parts if isinstance(part, Result)) if role == "user" else ()
        kind = "ours" if stripped and not body.get("content") else "tool" if answers else str(role)
        texts = [part.text for part in parts if isinstance(part, Text)]
        return Message(
            raw=compact(body) if stripped else raw,
            kind=kind,
            parts=parts,
            calls=tuple(part.call_id for part in parts if isinstance(part, Call)) if role == "assistant" else (),
            answers=answers,
            key=match_key(kind, parts),
            tokens=self.tokens(body),
            prompt=own_words(texts) if kind in ("user", "tool") else "",
            boundary=any(block.get("type") == "compaction" for block in _blocks(body)),
            stripped=stripped,
        )

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What a message costs in a prompt: every text that is sent, thinking included, and pictures."""
        count = self._meter.count
        total = MESSAGE_TOKENS
        for block in _blocks(body):
            for part in _parts(block, "user"):
                match part:
                    case Text(_, text) | Opaque(_, text) | Thinking(text) | Result(text):
                        total += count(text)
                    case Call(name, arguments):
                        total += count(name) + count(arguments) + MESSAGE_TOKENS
                    case Media():
                        total += part.tokens
        return total

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """See `Dialect.with_block`. Results must come first, so the block stands behind them."""
        blocks = _blocks(body)
        at = next((p for p in range(len(blocks) - 1, -1, -1) if blocks[p].get("type") == "tool_result"), -1) + 1
        return {**body, "content": [*blocks[:at], {"type": "text", "text": block}, *blocks[at:]]}

    def with_tail(self, bodies: list[dict[str, Any]], block: str) -> list[dict[str, Any]]:
        """See `Dialect.with_tail`. Roles alternate, so the block is the last part of the last message."""
        last = bodies[-1]
        return [*bodies[:-1], {**last, "content": [*_blocks(last), {"type": "text", "text": block}]}]

    def with_hot_lines(self, bodies: list[dict[str, Any]], at: int, text: str) -> None:
        """See `Dialect.with_hot_lines`."""
        if at < len(bodies) and bodies[at].get("role") == "user":
            bodies[at] = self.with_block(bodies[at], text)
        else:
            bodies.insert(at, {"role": "user", "content": text})

    def with_results(self, body: dict[str, Any], line: Callable[[str], str]) -> dict[str, Any]:
        """See `Dialect.with_results`."""
        blocks = [
            {**block, "content": line(str(block.get("tool_use_id", "")))}
            if block.get("type") == "tool_result"
            else block
            for block in _blocks(body)
        ]
        return {**body, "content": blocks}

    def without_answers(self, body: dict[str, Any], gone: Collection[int]) -> dict[str, Any] | None:
        """See `Dialect.without_answers`."""
        kept, number = [], -1
        for block in _blocks(body):
            number += block.get("type") == "tool_result"
            if block.get("type") != "tool_result" or number not in gone:
                kept.append(block)
        return {**body, "content": kept} if kept else None

    def answer(self, call_id: str, text: str, caller: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.answer`."""
        result = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": True}
        return {"role": "user", "content": [result]}

    def joined_answers(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """See `Dialect.joined_answers`: one message, the results first."""
        blocks = [block for body in bodies for block in _blocks(body)]
        blocks.sort(key=lambda block: block.get("type") != "tool_result")
        return [{**bodies[0], "content": blocks}]

    def renamed(self, body: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """See `Dialect.renamed`."""
        fields = {"tool_use": "id", "tool_result": "tool_use_id"}
        left = iter(names)
        blocks = [
            {**block, fields[block["type"]]: next(left)} if block.get("type") in fields else block
            for block in _blocks(body)
        ]
        return {**body, "content": blocks}

    def filled(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.filled`. Words behind a call (put there after an abort) are refused too: calls come last."""
        content = body.get("content")
        if content == [] or (isinstance(content, str) and not content.strip()):
            return {**body, "content": EMPTY}
        if not isinstance(content, list):
            return body
        kept = [_filled(block) for block in content if not _is_empty(block)]
        if body.get("role") == "assistant" and {block.get("type") for block in kept} == {"text", "tool_use"}:
            kept.sort(key=lambda block: block.get("type") == "tool_use")  # an answer that holds thinking is never moved
        if kept == content:
            return body
        return {**body, "content": kept or [{"type": "text", "text": EMPTY}]}

    def with_mark(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """See `Dialect.with_mark`. Thinking cannot carry one."""
        blocks = _blocks(body)
        if not blocks or blocks[-1].get("type") in _NO_MARK or _is_empty(blocks[-1]):
            return None
        return {**body, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def _blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = body.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if content is None:
        return []
    if not isinstance(content, list | tuple):
        raise HistoryError("", f"content is {type(content).__name__}; a text or a list of blocks was expected")
    for number, block in enumerate(content):
        if not isinstance(block, Mapping):
            raise HistoryError("", f"content block {number} is {type(block).__name__}, an object was expected")
    return [dict(block) for block in content]


def _is_empty(block: Any) -> bool:
    """Whether a text block says nothing: this provider refuses blanks alone as well."""
    return isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text", "")).strip()


def _filled(block: dict[str, Any]) -> dict[str, Any]:
    """A result whose text blocks are empty, with a filler; any other block as it is."""
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list) or not any(map(_is_empty, content)):
        return block
    kept = [part for part in content if not _is_empty(part)]
    return {**block, "content": kept or [{"type": "text", "text": EMPTY}]}


def _parts(block: Mapping[str, Any], role: str) -> Iterator[Part]:
    kind = str(block.get("type", "text"))
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        yield Text(role, text)
    elif kind in ("thinking", "redacted_thinking"):
        yield Thinking(str(block.get("thinking") or ""))
    elif kind == "tool_use" and isinstance(block.get("name"), str):
        yield Call(str(block["name"]), compact(block.get("input") or {}).decode(), str(block.get("id") or ""))
    elif kind == "tool_result":
        yield from _result(block)
    elif kind in ("image", "document") and isinstance(source := block.get("source"), Mapping):
        data = source.get("data") if source.get("type") == "base64" else None
        reference = data or source.get("url") or source.get("file_id") or source.get("data") or ""
        name = "image" if kind == "image" else "file"
        yield media(name, str(reference), str(source.get("media_type") or ""), encoded=data is not None)
    else:
        yield Opaque(kind, compact({k: v for k, v in block.items() if k != "cache_control"}).decode())


def _result(block: Mapping[str, Any]) -> Iterator[Part]:
    content = block.get("content")
    inner = [part for item in _blocks({"content": content}) for part in _parts(item, "tool")]
    texts = [part.text for part in inner if isinstance(part, Text)]
    yield Result("\n".join(texts), str(block.get("tool_use_id") or ""), bool(block.get("is_error")))
    yield from (part for part in inner if not isinstance(part, Text))
