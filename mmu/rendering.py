"""How a step reads, and the one line that stands for it once it is folded. Pure functions of the step's parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from mmu.step import Call, Media, Opaque, Part, Result, Text, Thinking, well_formed

_COMMAND_KEYS = ("command", "cmd")
_EXIT = re.compile(r"\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+(-?\d{1,3})\b", re.IGNORECASE)
_NOT_BLANK = re.compile(r"\S[^\r\n]*")
_LINE = 280


def render(parts: Iterable[Part]) -> str:
    """The readable text of a step: `user: ...`, `$ command`, output, one line for each picture.

    What it shows of the source is a verbatim slice of the decoded part; lone surrogates become U+FFFD.
    """
    return well_formed("\n".join(line for part in parts if (line := _render(part))))


def _render(part: Part) -> str:
    match part:
        case Text(role, text):
            return f"{role}: {text}" if text else ""
        case Call(name, arguments):
            return _render_call(name, arguments)
        case Result(text):
            return text
        case Media(kind, media_type, size, sha256):
            return f"[{kind} {media_type}, {size:,} bytes, sha256 {sha256[:12]}]"
        case Opaque(kind, text):
            return f"[{kind}] {text}"
        case Thinking():
            return ""


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _render_call(name: str, arguments: str) -> str:
    values = _arguments(arguments)
    for key in _COMMAND_KEYS:
        command = values.get(key)
        if isinstance(command, list):  # an argument vector
            command = " ".join(map(str, command))
        if isinstance(command, str):
            return f"$ {command}"
    if not values:
        return f"> {name} {arguments}".rstrip()
    short = [f"{key}={_plain(value)}" for key, value in values.items() if not _is_long(value)]
    long = [f"{key}:\n{value}" for key, value in values.items() if _is_long(value)]
    return "\n".join([" ".join([f"> {name}", *short]), *long])


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value or len(value) > _LINE)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def headline(parts: Sequence[Part], size: int, limit: int) -> str:
    """The line that stands for a folded step: the user's first line, or the tools' names, exit status, and the size.

    `size` is the step in tokens, `limit` the length in characters. It never holds text of a result: a poisoned tool output
    would otherwise stay in the prompt for good.
    """
    calls = [part for part in parts if isinstance(part, Call)]
    tail = f" ({size:,} tokens)"
    if calls:
        head = "; ".join(_call_line(call) for call in calls)
        status = _exit_status([part for part in parts if isinstance(part, Result)])
        tail = f"{status}{tail}"
    else:
        texts = [part for part in parts if isinstance(part, Text) and part.text.strip()]
        head = f"{texts[0].role}: {first_line(texts[0].text)}" if texts else _kinds(parts)
    head = " ".join(well_formed(head).split())
    room = max(0, limit - len(tail))
    return (head if len(head) <= room else head[: max(0, room - 1)] + "…") + tail


def first_line(text: str) -> str:
    """The first line of a text that is not blank."""
    found = _NOT_BLANK.search(text)
    return found[0].rstrip() if found else ""


def _call_line(call: Call) -> str:
    rendered = first_line(_render_call(call.name, call.arguments))
    return f"{call.name} {rendered[2:]}" if rendered.startswith("$ ") else rendered.removeprefix("> ")


def _exit_status(results: Sequence[Result]) -> str:
    codes = [found[-1] for result in results if (found := _EXIT.findall(result.text[-400:]))]
    if codes:
        return f", exit {codes[-1]}"
    return ", error" if any(result.error for result in results) else ""


def _kinds(parts: Sequence[Part]) -> str:
    names = [part.kind if isinstance(part, Media | Opaque) else type(part).__name__.lower() for part in parts]
    return "[" + ", ".join(names) + "]" if names else "[empty]"
