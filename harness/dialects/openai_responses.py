"""OpenAI Responses items: messages, reasoning, calls and their outputs, each an item of its own. session-formats.md 3b."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.dialects.common import MESSAGE_TOKENS, as_text, match_key, media, own_words, without_envelopes
from harness.errors import HistoryError
from harness.history import Message, compact
from mmu.envelope import place
from mmu.step import Call, Media, Opaque, Part, Result, Text, Thinking
from mmu.tokens import Meter

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXT_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_TEXT_TYPES = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
EMPTY = "(empty)"


class OpenAIResponses:
    """The dialect of /v1/responses with the whole input sent. History that the server holds cannot be read here."""

    name = "openai-responses"
    one_answer_message = False
    free_order = True
    unique_calls = True

    def __init__(self, session: str, meter: Meter) -> None:
        self._session, self._meter = session, meter

    def read_message(self, body: Mapping[str, Any], raw: bytes, *, own: bool = True) -> Message:
        """See `Dialect.read_message`."""
        kind = _kind(body)
        body, stripped = without_envelopes(body, self._session) if kind == "user" and own else (body, 0)
        if stripped and not body.get("content"):
            kind = "ours"
        parts = tuple(_parts(body))
        return Message(
            raw=compact(body) if stripped else raw,
            kind=kind,
            parts=parts,
            calls=tuple(part.call_id for part in parts if isinstance(part, Call)),
            answers=tuple(part.call_id for part in parts if isinstance(part, Result)),
            key=match_key(kind, parts),
            tokens=self.tokens(body),
            prompt=own_words(part.text for part in parts if isinstance(part, Text)) if kind == "user" else "",
            joins=kind == "assistant",
            boundary=body.get("type") in ("compaction", "compaction_summary"),
            stripped=stripped,
        )

    def tokens(self, body: Mapping[str, Any]) -> int:
        """What an item costs in a prompt; encrypted content counts by its length, a quarter token for each character."""
        count = self._meter.count
        total = MESSAGE_TOKENS
        for part in _parts(body):
            match part:
                case Text(_, text) | Opaque(_, text) | Thinking(text) | Result(text):
                    total += count(text)
                case Call(name, arguments):
                    total += count(name) + count(arguments)
                case Media():
                    total += part.tokens
        sealed = body.get("encrypted_content")
        return total + (len(sealed) // 4 if isinstance(sealed, str) else 0)

    def with_block(self, body: dict[str, Any], block: str) -> dict[str, Any]:
        """See `Dialect.with_block`."""
        content = body.get("content")
        if isinstance(content, list):
            return {**body, "content": [{"type": "input_text", "text": block}, *content]}
        return {**body, "content": place(block, content or "")}

    def with_tail(self, bodies: list[dict[str, Any]], block: str) -> list[dict[str, Any]]:
        """See `Dialect.with_tail`."""
        return [*bodies, _user(block)]

    def with_hot_lines(self, bodies: list[dict[str, Any]], at: int, text: str) -> None:
        """See `Dialect.with_hot_lines`."""
        bodies.insert(at, _user(text))

    def with_results(self, body: dict[str, Any], line: Callable[[str], str]) -> dict[str, Any]:
        """See `Dialect.with_results`. An output that must be an object (a screenshot, a patch's state) stays."""
        output, text = body.get("output"), line(str(body.get("call_id") or ""))
        if body.get("type") in _TEXT_OUTPUTS:
            return {**body, "output": text}
        if isinstance(output, list) and output and all(isinstance(one, dict) and "stdout" in one for one in output):
            return {**body, "output": [{**output[0], "stdout": text, "stderr": ""}]}
        return body

    def without_answers(self, body: dict[str, Any], gone: Collection[int]) -> dict[str, Any] | None:
        """See `Dialect.without_answers`. An item holds one answer."""
        return None if gone else body

    def answer(self, call_id: str, text: str, caller: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.answer`."""
        output: Any = [{"stdout": "", "stderr": text}] if caller.get("type") == "shell_call" else text
        return {"type": f"{caller['type']}_output", "call_id": call_id, "output": output}

    def joined_answers(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """See `Dialect.joined_answers`."""
        return bodies

    def renamed(self, body: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """See `Dialect.renamed`."""
        return {**body, "call_id": names[0]} if names else body

    def filled(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Dialect.filled`. Empty texts are taken by this provider."""
        return body

    def with_mark(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """See `Dialect.with_mark`. This provider finds its prefixes by itself."""
        return None


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _kind(body: Mapping[str, Any]) -> str:
    type_, role = body.get("type", "message" if "role" in body else None), body.get("role")
    if type_ == "message":
        if role not in _ROLES:
            raise HistoryError("", f"role {role!r} is none of {', '.join(_ROLES)}")
        return _ROLES[str(role)]
    if type_ == "item_reference":
        raise HistoryError("", "an item_reference: that part of the history is held by the server")
    if not isinstance(type_, str):
        raise HistoryError("", "an item has a type, or a role; this one has neither")
    if type_ in ("compaction", "compaction_summary"):
        return "system"
    return "tool" if _answers(body) else "assistant"


def _calls(body: Mapping[str, Any]) -> bool:
    """Whether an item waits for an output: every `..._call` with a call id does; hosted tools have none."""
    return str(body.get("type")).endswith("_call") and isinstance(body.get("call_id"), str)


def _answers(body: Mapping[str, Any]) -> bool:
    """Whether an item is the output of a call."""
    return str(body.get("type")).endswith("_output") and isinstance(body.get("call_id"), str)


def _parts(body: Mapping[str, Any]) -> Iterator[Part]:
    type_ = body.get("type", "message")
    if type_ == "message":
        yield from _content(body.get("content"), str(body.get("role")))
    elif type_ == "reasoning":
        summary = body.get("summary") if isinstance(body.get("summary"), list) else []
        yield Thinking("\n".join(str(item.get("text", "")) for item in summary or () if isinstance(item, Mapping)))
    elif _calls(body):
        arguments = body.get("arguments", body.get("input", body.get("action", "")))
        yield Call(str(body.get("name") or type_), as_text(arguments), str(body.get("call_id") or ""))
    elif _answers(body):
        output = body.get("output")
        inner = list(_content(output if isinstance(output, str | list) else as_text(output), "tool"))
        texts = [part.text for part in inner if isinstance(part, Text)]
        yield Result("\n".join(texts), str(body.get("call_id") or ""))
        yield from (part for part in inner if not isinstance(part, Text))
    else:
        yield Opaque(str(type_), compact({k: v for k, v in body.items() if k != "id"}).decode())


def _content(content: Any, role: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(role, content)
    elif isinstance(content, list | tuple):
        for number, part in enumerate(content):
            if not isinstance(part, Mapping):
                raise HistoryError("", f"content part {number} is {type(part).__name__}, an object was expected")
            yield _content_part(part, role)
    elif content is not None:
        raise HistoryError("", f"content is {type(content).__name__}; a text or a list of parts was expected")


def _content_part(part: Mapping[str, Any], role: str) -> Part:
    kind = str(part.get("type", "input_text"))
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str) and (kind in _TEXT_TYPES or kind == "refusal"):
        return Text(role, text)
    if kind == "input_image":
        detail = part.get("detail")
        source = str(part.get("image_url") or part.get("file_id") or "")
        return media("image", source, detail=str(detail) if detail else None)
    if kind == "input_file":
        data = part.get("file_data")
        source = str(data or part.get("file_url") or part.get("file_id") or "")
        return media("file", source, "application/octet-stream", encoded=bool(data))
    return Opaque(kind, compact(dict(part)).decode())
