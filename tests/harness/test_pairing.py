"""The last check before the wire: a table of requests, one letter for each message."""

from __future__ import annotations

from typing import Any

import pytest

from harness.dialects.openai_chat import OpenAIChat
from harness.pairing import problems
from harness.reader import Reader

# u: user, s: system, a: assistant, (xy): assistant that calls x and y, x: the result of call x.
CASES = {
    "": (),
    "u": (),
    "sua": (),
    "u(x)xa": (),
    "u(xy)xya": (),
    "u(xy)yxa": (),
    "u(x)x(x)xa": (),
    "u(xx)xxa": ("message 1: call id 'x' is used twice",),
    "u(x)": ("message 1: no answer to call 'x' where it must stand",),
    "u(xy)x": ("message 1: no answer to call 'y' where it must stand",),
    "u(x)sxa": (
        "message 1: no answer to call 'x' where it must stand",
        "message 3: a result for call 'x', which is not open",
    ),
    "u(x)xu(x)x": (),
    "x": ("message 0: a result for call 'x', which is not open",),
    "ux": ("message 1: a result for call 'x', which is not open",),
    "u(x)xx": ("message 3: a result for call 'x', which is not open",),
    "u(x)y": (
        "message 2: a result for call 'y', which is not open",
        "message 1: no answer to call 'x' where it must stand",
    ),
    "u(x)u": ("message 1: no answer to call 'x' where it must stand",),
    "u(xy)xa": ("message 1: no answer to call 'y' where it must stand",),
    "u(xy)u": ("message 1: no answer to call 'x', 'y' where it must stand",),
    "u(x)(y)y": ("message 1: no answer to call 'x' where it must stand",),
    "u(x)ux": (
        "message 1: no answer to call 'x' where it must stand",
        "message 3: a result for call 'x', which is not open",
    ),
    "u(xx)xa": ("message 1: call id 'x' is used twice", "message 1: no answer to call 'x' where it must stand"),
}


def messages(word: str) -> list[dict[str, Any]]:
    """The messages of a word."""
    made: list[dict[str, Any]] = []
    names = {"u": "user", "a": "assistant", "s": "system"}
    inside = False
    for letter in word:
        if letter == "(":
            made.append({"role": "assistant", "content": None, "tool_calls": []})
        elif inside and letter != ")":
            made[-1]["tool_calls"].append({"id": letter, "function": {"name": "f", "arguments": "{}"}})
        elif letter in names:
            made.append({"role": names[letter], "content": letter})
        elif letter != ")":
            made.append({"role": "tool", "tool_call_id": letter, "content": "42"})
        inside = (inside or letter == "(") and letter != ")"
    return made


@pytest.mark.parametrize("word", CASES)
def test_what_a_provider_would_refuse_is_found_and_named(word: str, meter: Any) -> None:
    reader = Reader(OpenAIChat("s", meter))
    assert problems(reader.read(messages(word)).messages, reader.dialect) == CASES[word]
