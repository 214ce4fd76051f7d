"""Recordings from files: the shapes that are read, and a clear word for those that are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SessionFileError
from harness.recorded import load

TALK = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "Bye."},
]
CHUNK = 'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}'


def written(path: Path, content: Any) -> Path:
    """The file, with the content as JSON unless it is bytes."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


SHAPES: dict[str, tuple[Any, list[tuple[str, list[tuple[int, bool]]]]]] = {
    "a list of messages": (TALK, [("f", [(2, True), (4, False)])]),
    "an object with messages": ({"messages": TALK[:3], "probes": []}, [("f", [(2, True)])]),
    "with a byte order mark": (b"\xef\xbb\xbf" + json.dumps(TALK).encode(), [("f", [(2, True), (4, False)])]),
    "json lines": (
        b"\n".join(json.dumps({"messages": TALK[:end]}).encode() for end in (3, 4)) + b"\n\n",
        [("f-1", [(2, True)]), ("f-2", [(2, True), (4, False)])],
    ),
    "exchanges": (
        [
            {"request": {"messages": TALK[:2]}, "response": {"choices": [{"message": TALK[2]}]}},
            {"request": {"messages": TALK}, "response": {"error": "overloaded"}},
            {"request": {"messages": TALK}, "response_sse": f"{CHUNK}\n\ndata: [DONE]\n"},
        ],
        [("f", [(2, True), (4, False), (4, True)])],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_gives_its_conversations_call_by_call(shape: str, tmp_path: Path) -> None:
    content, expected = SHAPES[shape]
    found = load(written(tmp_path / "f.session.json", content))
    assert [(r.name, [(len(a.history), a.reply is not None) for a in r.calls]) for r in found] == expected


def test_a_streamed_exchange_tells_whether_it_calls_a_tool(tmp_path: Path) -> None:
    content = [{"request": {"messages": TALK}, "response_sse": text} for text in (CHUNK, "data: {}", "")]
    calls = load(written(tmp_path / "f.json", content))[0].calls
    assert [asked.reply["tool_calls"] for asked in calls if asked.reply] == [True, False, False]


WRONG: dict[str, tuple[Any, str]] = {
    "empty": (b"", "no JSON|no message"),
    "no JSON": (b"hello", "f.json: no JSON at line 1, column 1"),
    "a broken line": (b'{"messages": []}\n{"mess', "f.json: no JSON at line 2"),
    "a number": (b"7", "f: neither chat messages nor exchanges"),
    "an empty list": ([], "f: neither chat messages nor exchanges"),
    "a list of numbers": ([1, 2], "f: neither chat messages nor exchanges"),
    "an object of another kind": ({"events": []}, "f: neither chat messages nor exchanges"),
    "no messages": ({"messages": []}, "f.json: no message in it that a model would answer"),
    "only answers": ([TALK[2]], "f.json: no message in it that a model would answer"),
    "an exchange without messages": ([{"request": {}}], "no exchange in it has a request with a list of messages"),
    "an exchange of another kind": ([{"request": 7}], "no exchange in it has a request with a list of messages"),
    "a broken event": (
        [{"request": {"messages": TALK}, "response_sse": "data: {broken"}],
        "exchange 0: its event stream has no JSON in an event",
    ),
    "binary": (bytes(range(256)), "f.json: no JSON at line 1"),
    "nesting without end": (b"[" * 100_000, "f.json: no JSON at line 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_holds_no_session_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    content, reason = WRONG[case]
    with pytest.raises(SessionFileError, match=reason):
        load(written(tmp_path / "f.json", content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="No such file"):
        load(tmp_path / "none.json")
    with pytest.raises(SessionFileError, match="directory"):
        load(tmp_path)
