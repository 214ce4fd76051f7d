"""Calls and results that do not belong together, healed on the way out; the store keeps what came (hazards A, B)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock
from harness.pairing import NO_RESULT
from store import MemoryStore

Body = dict[str, Any]


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def calls(*ids: str) -> Body:
    made = [{"id": i, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def answer(call_id: str, text: str = "ok") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def send(history: list[Body], dialect: Any = None) -> tuple[list[Body], tuple[str, ...], Harness]:
    harness = Harness.open(MemoryStore("s"), client=ScriptedClient([]), clock=fixed_clock(), on_fault="raise")
    before = json.dumps(history)
    dispatch = harness.pre_turn_dispatch(history, dialect=dialect)
    assert json.dumps(history) == before
    return dispatch.messages, dispatch.draft.faults, harness


A, DONE, ASK = user("a"), {"role": "assistant", "content": "done"}, user("and?")

CHAT = {
    "A1 A4 A9: an orphan in front is left out": ([answer("x"), A], [A]),
    "A7: a missing answer gets one that says so": (
        [A, calls("c1", "c2"), answer("c2"), ASK],
        [A, calls("c1", "c2"), answer("c2"), answer("c1", NO_RESULT), ASK],
    ),
    "A13 A15 A17: an aborted call": ([A, calls("c1"), ASK], [A, calls("c1"), answer("c1", NO_RESULT), ASK]),
    "A11: a late answer moves behind its call": (
        [A, calls("c1"), ASK, answer("c1", "late"), DONE],
        [A, calls("c1"), answer("c1", "late"), ASK, DONE],
    ),
    "A12 B5: of an interim and a final answer the final one stays": (
        [A, calls("c1"), answer("c1", "running"), answer("c1", "ready"), DONE, ASK],
        [A, calls("c1"), answer("c1", "ready"), DONE, ASK],
    ),
    "B1 B2: a constant id pairs with the nearest call": (
        [A, calls("X"), answer("X", "1"), DONE, ASK, calls("X"), answer("X", "2"), DONE, A],
        [A, calls("X"), answer("X", "1"), DONE, ASK, calls("X"), answer("X", "2"), DONE, A],
    ),
    "B3: one id twice in one message is told apart": (
        [A, calls("X", "X"), answer("X", "1"), answer("X", "2"), ASK],
        [A, calls("X", "X~2"), answer("X", "1"), answer("X~2", "2"), ASK],
    ),
    "no provider goes on from an open call at the end": ([A, calls("c1")], [A, calls("c1"), answer("c1", NO_RESULT)]),
    "nor from one of two answers": (
        [A, calls("c1", "c2"), answer("c1")],
        [A, calls("c1", "c2"), answer("c1"), answer("c2", NO_RESULT)],
    ),
    "a system message between call and result moves behind it": (
        [A, calls("c1"), {"role": "system", "content": "s"}, answer("c1"), DONE, ASK],
        [A, calls("c1"), answer("c1"), {"role": "system", "content": "s"}, DONE, ASK],
    ),
    "a result that comes late and one that belongs nowhere": (
        [A, calls("c1"), answer("zz"), answer("c1"), DONE, ASK],
        [A, calls("c1"), answer("c1"), DONE, ASK],
    ),
}


@pytest.mark.parametrize("about", CHAT)
def test_chat_messages_are_healed(about: str) -> None:
    history, expected = CHAT[about]
    sent, faults, harness = send(history)
    assert sent == expected
    assert bool(faults) == (history != expected)
    archived = {step_id: json.loads(harness.store.get(step_id).payload) for step_id in harness.store.entries}
    assert all(message in history for payload in archived.values() for message in payload), "the store keeps what came"


def test_a_healed_history_is_healed_the_same_way_again() -> None:
    history, _ = CHAT["A7: a missing answer gets one that says so"]
    first, _, harness = send(history)
    again = harness.pre_turn_dispatch([*history, DONE, ASK])
    assert again.messages[: len(first)] == first


def tool_use(*ids: str) -> Body:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "bash", "input": {}} for i in ids]}


def tool_result(*ids: str, text: str = "", error: bool = False) -> Body:
    blocks: list[Body] = [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ids]
    return {"role": "user", "content": [*blocks, *([{"type": "text", "text": text}] if text else [])]}


MISSING = {"type": "tool_result", "tool_use_id": "t2", "content": NO_RESULT, "is_error": True}

ANTHROPIC = {
    "A7: results of one message that came in two are joined": (
        [A, tool_use("t1", "t2"), tool_result("t1"), tool_result("t2"), tool_use("t3")],
        [
            A,
            tool_use("t1", "t2"),
            tool_result("t1", "t2"),
            tool_use("t3"),
            {"role": "user", "content": [MISSING | {"tool_use_id": "t3"}]},
        ],
    ),
    "A8: a missing one is added before the user's words": (
        [A, tool_use("t1", "t2"), tool_result("t1", text="go on"), DONE, ASK],
        [
            A,
            tool_use("t1", "t2"),
            {
                "role": "user",
                "content": [tool_result("t1")["content"][0], MISSING, {"type": "text", "text": "go on"}],
            },
            DONE,
            ASK,
        ],
    ),
    "A3: a result without its call goes, the words beside it stay": (
        [A, DONE, tool_result("gone", text="hello"), DONE, ASK],
        [A, DONE, {"role": "user", "content": [{"type": "text", "text": "hello"}]}, DONE, ASK],
    ),
    "D1 D4: empty texts get a filler or go": (
        [
            A,
            {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]},
            user(""),
            DONE,
            ASK,
        ],
        [A, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}, user("(empty)"), DONE, ASK],
    ),
}


ANTHROPIC |= {
    "the newest exchange with one of two results": (
        [A, tool_use("t1", "t2"), tool_result("t1")],
        [A, tool_use("t1", "t2"), {"role": "user", "content": [tool_result("t1")["content"][0], MISSING]}],
    ),
    "one id twice in the newest exchange": (
        [A, tool_use("t", "t"), tool_result("t")],
        [
            A,
            tool_use("t", "t~2"),
            {"role": "user", "content": [tool_result("t")["content"][0], {**MISSING, "tool_use_id": "t~2"}]},
        ],
    ),
}


@pytest.mark.parametrize("about", ANTHROPIC)
def test_anthropic_messages_are_healed(about: str) -> None:
    history, expected = ANTHROPIC[about]
    sent, _, _ = send(history, "anthropic")
    assert sent == expected


def item(call_id: str) -> Body:
    return {"type": "function_call", "call_id": call_id, "name": "bash", "arguments": "{}"}


def output(call_id: str, text: str = "ok") -> Body:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(role: str, text: str) -> Body:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_a_call_id_that_repeats_is_renamed_from_the_second_use_on() -> None:
    """B6: the provider refuses two outputs with one id; the first keeps its name, so a cached prefix stays."""
    history = [
        said("user", "a"),
        item("t0"),
        output("t0", "1"),
        said("user", "b"),
        item("t0"),
        output("t0", "2"),
        said("user", "c"),
    ]
    sent, _, _ = send(history)
    assert [one.get("call_id") for one in sent if "call_id" in one] == ["t0", "t0", "t0~2", "t0~2"]


def test_half_a_character_is_made_whole_on_the_wire_and_kept_in_the_store() -> None:
    """G1 G2: strict parsers refuse a lone surrogate."""
    sent, _, harness = send([user("cut \ud83d here"), DONE, ASK])
    assert sent[0]["content"] == "cut \ufffd here"
    assert json.loads(harness.store.get(0).payload)[0]["content"] == "cut \ud83d here"
