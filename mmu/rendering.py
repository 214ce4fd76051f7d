"""How a step reads, and the one line that stands for it once it is folded. Pure functions of the step's parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from mmu.step import Call, Media, Opaque, Part, Result, Text, Thinking, well_formed

_COMMAND_KEYS = ("command", "cmd")
_EXIT = re.compile(r"\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+(-?\d{1,3})\b", re.IGNORECASE)
_TAIL = re.compile(r"(?:, (?:exit -?\d{1,3}|error))? \([\d,]+ tokens\)\Z")
_NOT_BLANK = re.compile(r"\S[^\r\n]*")
_LINE = 280
_BETWEEN = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()


def words(parts: Iterable[Part]) -> str:
    """What a step is found by: its rendering without the names of roles, which stand in every step."""
    return well_formed("\n".join(part.text if isinstance(part, Text) else _render(part) for part in parts))


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


class _Argument(NamedTuple):
    value: Any
    written: str


def _arguments(text: str) -> Mapping[str, _Argument]:
    """The fields of a JSON object, each as it is written too: a number read and written again may look different. Empty for
    anything that is no object, or that is nested too deep to be read."""
    found: dict[str, _Argument] = {}
    try:
        if not isinstance(orjson.loads(text), dict):
            return {}
        at = _after(text, text.index("{") + 1)
        while text[at] != "}":  # it is an object: what follows is keys and values in turn
            key, at = _DECODER.raw_decode(text, at)
            start = _after(text, at)
            value, end = _DECODER.raw_decode(text, start)
            found[key] = _Argument(value, text[start:end])
            at = _after(text, end)
    except (ValueError, RecursionError):
        return {}
    return found


def _after(text: str, at: int) -> int:
    """The place of the next key or value, or of the end of the object."""
    blank = _BETWEEN.match(text, at)
    return blank.end() if blank else at


def _render_call(name: str, arguments: str) -> str:
    values = _arguments(arguments)
    for key in _COMMAND_KEYS:
        command = values[key].value if key in values else None
        if isinstance(command, list) and all(isinstance(word, str) for word in command):  # an argument vector
            command = " ".join(command)
        if isinstance(command, str):
            return f"$ {command}"
    if not values:
        return f"> {name} {arguments}".rstrip()
    short = [f"{key}={_plain(argument)}" for key, argument in values.items() if not _is_long(argument.value)]
    long = [f"{key}:\n{argument.value}" for key, argument in values.items() if _is_long(argument.value)]
    return "\n".join([" ".join([f"> {name}", *short]), *long])


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value or len(value) > _LINE)


def _plain(argument: _Argument) -> str:
    return argument.value if isinstance(argument.value, str) else argument.written


def headline(parts: Sequence[Part], size: int, limit: int) -> str:
    """The line that stands for a folded step: the user's first line, or the tools' names, exit status, and the size.

    `size` is the step in tokens, `limit` the length in characters. It never holds text of a result: a poisoned tool output
    would otherwise stay in the prompt for good.
    """
    calls = [part for part in parts if isinstance(part, Call)]
    tail = f" ({size:,} tokens)"
    if calls:
        head = "; ".join(_call_line(call) for call in calls)
        status = exit_status([part for part in parts if isinstance(part, Result)])
        tail = f"{status}{tail}"
    else:
        texts = [part for part in parts if isinstance(part, Text) and part.text.strip()]
        head = f"{texts[0].role}: {first_line(texts[0].text)}" if texts else _kinds(parts)
    return shorten(" ".join(well_formed(head).split()) + tail, limit)


def shorten(line: str, limit: int) -> str:
    """A headline of at most `limit` characters: its words are cut, the exit status and the size at its end stay."""
    found = _TAIL.search(line)
    tail = found[0] if found else ""
    head, room = line[: len(line) - len(tail)], max(0, limit - len(tail))
    return (head if len(head) <= room else head[: max(0, room - 1)] + "…") + tail


def first_line(text: str) -> str:
    """The first line of a text that is not blank."""
    found = _NOT_BLANK.search(text)
    return found[0].rstrip() if found else ""


def _call_line(call: Call) -> str:
    rendered = first_line(_render_call(call.name, call.arguments))
    return f"{call.name} {rendered[2:]}" if rendered.startswith("$ ") else rendered.removeprefix("> ")


def exit_status(results: Sequence[Result]) -> str:
    codes = [found[-1] for result in results if (found := _EXIT.findall(result.text[-400:]))]
    if codes:
        return f", exit {codes[-1]}"
    return ", error" if any(result.error for result in results) else ""


def _kinds(parts: Sequence[Part]) -> str:
    names = [part.kind if isinstance(part, Media | Opaque) else type(part).__name__.lower() for part in parts]
    return "[" + ", ".join(names) + "]" if names else "[empty]"
