"""How steps read, and the line that stands for a folded one: two tables, and what holds for every text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmu.rendering import headline, render
from mmu.step import Call, Media, Opaque, Part, Result, Text, Thinking, well_formed

PNG = Media("image", "image/png", 68_123, "ab" * 32, 765)
TREE = json.dumps({"a": [1, 2.50, {"b": None}], "c": 1e5, "d": True, "e": "x y"})

RENDERINGS: list[tuple[list[Part], str]] = [
    ([], ""),
    ([Text("user", "Hello.\n\n  there ")], "user: Hello.\n\n  there "),
    ([Text("assistant", "")], ""),
    ([Text("user", "one"), Text("user", "two")], "user: one\nuser: two"),
    ([Call("bash", '{"command": "ls -l  /tmp"}'), Result("a\n\nb\n")], "$ ls -l  /tmp\na\n\nb\n"),
    ([Call("shell", '{"cmd": ["git", "log", "-1"]}')], "$ git log -1"),
    ([Call("run", '{"command": ["ls", 1]}')], '> run command=["ls", 1]'),
    ([Call("run", '{"command": {"x": 1}}')], '> run command={"x": 1}'),
    ([Call("read", '{"path": "a.py", "lines": [1, 20]}')], "> read path=a.py lines=[1, 20]"),
    ([Call("write", '{"path": "a", "text": "x\\n  y"}')], "> write path=a\ntext:\nx\n  y"),
    ([Call("tree", TREE)], '> tree a=[1, 2.5, {"b": null}] c=100000.0 d=true e=x y'),
    (
        [Call("exact", '{"n" :1.50,"big": 123456789012345678901,  "e":1E5}')],
        "> exact n=1.50 big=123456789012345678901 e=1E5",
    ),
    ([Call("keys", '{"a": 1, "a": 2, "é": "ü"}')], "> keys a=2 é=ü"),
    ([Call("none", "")], "> none"),
    ([Call("none", "{}")], "> none {}"),
    ([Call("list", "[1, 2]")], "> list [1, 2]"),
    ([Call("broken", '{"a": ')], '> broken {"a":'),
    ([PNG, Text("user", "What is it?")], f"[image image/png, 68,123 bytes, sha256 {'ab' * 6}]\nuser: What is it?"),
    ([Opaque("hologram", '{"type":"hologram"}')], '[hologram] {"type":"hologram"}'),
    ([Thinking("secret"), Text("assistant", "ok")], "assistant: ok"),
    ([Text("user", "half \ud83c emoji 🎉")], "user: half \ufffd emoji 🎉"),
]


@pytest.mark.parametrize(
    ("parts", "expected"), RENDERINGS, ids=lambda value: value[:24] if isinstance(value, str) else ""
)
def test_a_step_reads_as_written(parts: list[Part], expected: str) -> None:
    assert render(parts) == expected
    assert render(parts) == render(tuple(parts))


@pytest.mark.parametrize("depth", [200, 300, 900, 1100, 100_000])
def test_arguments_nested_without_end_are_shown_and_never_raise(depth: int) -> None:
    arguments = '{"a": ' + "[" * depth + "]" * depth + "}"
    assert "[" * depth in render([Call("f", arguments)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from([None, 1]), st.text(max_size=20))
def test_what_is_shown_of_arguments_and_results_is_a_verbatim_slice(
    fields: dict[str, Any], indent: Any, output: str
) -> None:
    arguments = json.dumps(fields, indent=indent, ensure_ascii=False)
    shown = render([Call("f", arguments), Result(output)])
    for name, value in fields.items():
        if name in ("command", "cmd") and isinstance(value, str | list):
            return
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if indent is None or not isinstance(value, list | dict):
            assert well_formed(written) in shown
            assert isinstance(value, str) or written in arguments
    assert shown.endswith(well_formed(output))


TOOL = [Call("bash", '{"command": "pytest -q\\nrm x"}'), Result("poison\nexit code: 1")]
HEADLINES: list[tuple[list[Part], int, str]] = [
    ([Text("user", "\n  Fix the   port. \nThen test.")], 280, "user: Fix the port. (1,234 tokens)"),
    ([Text("assistant", "word " * 100)], 40, "assistant: word word wor… (1,234 tokens)"),
    (TOOL, 280, "bash pytest -q, exit 1 (1,234 tokens)"),
    (TOOL, 34, "bash pytes…, exit 1 (1,234 tokens)"),
    ([Call("read", '{"path": "a.py"}'), Result("poison")], 280, "read path=a.py (1,234 tokens)"),
    ([Call("a", "{}"), Call("b", "{}"), Result("x"), Result("y", error=True)], 280, "a {}; b {}, error (1,234 tokens)"),
    ([Text("assistant", "I look."), *TOOL], 280, "bash pytest -q, exit 1 (1,234 tokens)"),
    ([PNG], 280, "[image] (1,234 tokens)"),
    ([Result("poison")], 280, "[result] (1,234 tokens)"),
    ([], 280, "[empty] (1,234 tokens)"),
    ([Text("user", " \n ")], 280, "[text] (1,234 tokens)"),
]


@pytest.mark.parametrize(("parts", "limit", "expected"), HEADLINES)
def test_a_folded_step_leaves_one_line_without_text_of_a_result(parts: list[Part], limit: int, expected: str) -> None:
    line = headline(parts, 1234, limit)
    assert line == expected
    assert len(line) <= limit
    assert "poison" not in line


@given(st.lists(st.text() | st.text("\n\r\u2028\x85 a"), max_size=3), st.integers(32, 280))
def test_a_headline_is_one_line_within_its_limit(texts: list[str], limit: int) -> None:
    line = headline([Text("user", text) for text in texts], 5, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) == 1
