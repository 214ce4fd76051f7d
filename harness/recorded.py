"""Recorded conversations from a file: what was asked, turn by turn, and what was answered."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from harness.errors import SessionFileError
from harness.reply import StreamReply


@dataclass(frozen=True, slots=True)
class Asked:
    """One model call of a recording: the history it was given, and the reply (None where the recording ends)."""

    history: list[Any]
    reply: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A conversation: its name and its calls, in order. `document` is what the file says of itself; `passed_over` counts
    exchanges with a service that has other messages."""

    name: str
    calls: tuple[Asked, ...]
    document: Mapping[str, Any]
    passed_over: int = 0


def load(path: Path) -> tuple[Recorded, ...]:
    """The conversations in a file: a list of chat messages, an object with `messages`, JSON lines of such objects, or a
    list of exchanges (`request`, `response`); also compressed (`.gz`).

    Raises SessionFileError that says what is wrong, with the line for JSON lines.
    """
    try:
        raw = path.read_bytes()
        raw = (gzip.decompress(raw) if path.suffix == ".gz" else raw).removeprefix(b"\xef\xbb\xbf")
    except (OSError, EOFError, zlib.error) as error:
        raise SessionFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    name = path.name.partition(".")[0]
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        rows = list(_rows(path, raw, error))
        found = [conversation(f"{name}-{number}", row) for number, row in enumerate(rows, 1)]
    else:
        found = [conversation(name, document)]
    if not any(recorded.calls for recorded in found):
        raise SessionFileError(f"{path}: no message in it that a model would answer")
    return tuple(found)


def _rows(path: Path, raw: bytes, whole: orjson.JSONDecodeError) -> Iterator[Any]:
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            where = f"line {number}" if number > 1 else f"line {whole.lineno}, column {whole.colno}"
            raise SessionFileError(f"{path}: no JSON at {where} ({error.msg})") from error


def conversation(name: str, document: Any) -> Recorded:
    """The conversation in a document of one of these forms. Raises SessionFileError."""
    if isinstance(document, Mapping) and isinstance(document.get("messages"), list):
        return Recorded(name, tuple(_calls(document["messages"])), document)
    if isinstance(document, list) and document and all(isinstance(row, Mapping) for row in document):
        if all("request" in row for row in document):
            asked = [found for number, row in enumerate(document) if (found := _exchange(number, row))]
            if not asked:
                raise SessionFileError(f"{name}: no exchange in it has a request with a list of messages")
            return Recorded(name, tuple(asked), {}, len(document) - len(asked))
        if any("role" in row for row in document):
            return Recorded(name, tuple(_calls(document)), {})
    raise SessionFileError(f"{name}: neither chat messages nor exchanges were found in it")


def _calls(messages: list[Any]) -> Iterator[Asked]:
    """Every call whose answer stands in the list, and the one that is still to be answered."""
    for position, message in enumerate(messages):
        if position and isinstance(message, Mapping) and message.get("role") == "assistant":
            yield Asked(messages[:position], dict(message))
    if messages and isinstance(messages[-1], Mapping) and messages[-1].get("role") != "assistant":
        yield Asked(messages, None)


def _exchange(number: int, row: Mapping[str, Any]) -> Asked | None:
    """One exchange; None if its request has no list of messages (another service's)."""
    request = row["request"]
    messages = request.get("messages") if isinstance(request, Mapping) else None
    if not isinstance(messages, list):
        return None
    if isinstance(sse := row.get("response_sse"), str):
        try:
            return Asked(messages, {"tool_calls": _streamed_calls(sse)})
        except orjson.JSONDecodeError as error:
            raise SessionFileError(f"exchange {number}: its event stream has no JSON in an event ({error})") from error
    response = row.get("response")
    choices = response.get("choices") if isinstance(response, Mapping) else None
    reply = choices[0].get("message") if choices and isinstance(choices[0], Mapping) else None
    return Asked(messages, dict(reply) if isinstance(reply, Mapping) else None)


def _streamed_calls(sse: str) -> bool:
    """Whether a recorded event stream of chat chunks calls a tool."""
    gathered = StreamReply()
    for line in sse.splitlines():
        if line.startswith("data: {"):
            gathered.add(orjson.loads(line[6:]))
    return gathered.calls
