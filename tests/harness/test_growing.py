"""Histories that grow call by call: grouping a longer one adds to a shorter one, and nothing is torn apart on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Harness, ScriptedClient, fixed_clock
from harness.dialects import DialectName, make
from harness.reader import Reader
from mmu.envelope import seal
from mmu.tokens import open_meter
from store import MemoryStore

METER = open_meter()
Messages = list[dict[str, Any]]
IDS = ("x", "y", "")


def chat(word: str) -> dict[str, Any]:
    if word[0] == "c":
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in word[1:]]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if word[0] == "r":
        return {"role": "tool", "tool_call_id": word[1:], "content": f"result {word}"}
    return {"role": {"u": "user", "s": "system", "a": "assistant"}[word[0]], "content": word[1:]}


def responses(word: str) -> dict[str, Any]:
    if word[0] == "c":
        return {"type": "function_call", "call_id": word[1:2], "name": "f", "arguments": "{}"}
    if word[0] == "r":
        return {"type": "function_call_output", "call_id": word[1:], "output": "42"}
    if word == "a":
        return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}
    return {"type": "message", "role": {"u": "user", "s": "developer", "a": "assistant"}[word[0]], "content": word[1:]}


def anthropic(word: str) -> dict[str, Any]:
    if word[0] == "c":
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in word[1:]],
        }
    if word[0] == "r":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": word[1:], "content": "42"}]}
    return {"role": "assistant" if word[0] == "a" else "user", "content": word[1:]}


WRITERS = {"openai-chat": chat, "openai-responses": responses, "anthropic": anthropic}
WORDS = ["u", "uhello", "a", "aok", "s", "cx", "cxy", "cxx", "c", "rx", "ry", "r"]


@pytest.mark.parametrize("dialect", WRITERS)
@given(st.lists(st.sampled_from(WORDS), max_size=24), st.data())
def test_a_history_read_as_it_grows_is_grouped_as_one_read_at_once(
    dialect: DialectName, words: list[str], data: st.DataObject
) -> None:
    """D2: late results, orphans, interim answers, ids that repeat: the short way gives what the long way gives."""
    history = [WRITERS[dialect](word) for word in words]
    growing = Reader(make(dialect, "s", METER))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(history)), max_size=6)))
    for cut in [*cuts, len(history)]:
        now = [*history[:cut], *data.draw(st.sampled_from([[], [WRITERS[dialect]("uasked")]]))]
        found, fresh = growing.read(now), Reader(make(dialect, "s", METER)).read(now)
        assert [step.positions for step in found.steps] == [step.positions for step in fresh.steps]
        assert found == fresh or found.steps == fresh.steps


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def shell(number: int) -> Messages:
    action = {"commands": [f"cat file{number}"]}
    output = [
        {"stdout": f"content {number} " + "long " * 60, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    ]
    return [
        {"type": "shell_call", "call_id": f"s{number}", "action": action, "status": "completed"},
        {"type": "shell_call_output", "call_id": f"s{number}", "output": output},
    ]


def web(number: int) -> Messages:
    action = {"type": "search", "query": f"topic {number}"}
    call = {"type": "web_search_call", "id": f"ws{number}", "status": "completed", "action": action}
    return [call, said("assistant", f"Found {number}. " + "much text " * 60)]


@pytest.mark.parametrize("tool", [shell, web])
def test_items_that_grow_in_a_loop_stay_on_one_branch_and_whole(tool: Any) -> None:
    """D3 D4: the provider's own tools; each call adds items to what may still be one step."""
    store = MemoryStore("s")
    policy = {"high_water_tokens": 900, "low_water_tokens": 300, "keep_tokens": 200}
    with Harness.open(store, policy=policy, client=ScriptedClient([]), clock=fixed_clock(), on_fault="raise") as memory:
        history = [said("user", "Look around.")]
        for number in range(14):
            for item in tool(number):
                history.append(item)
                dispatch = memory.pre_turn_dispatch(history)
                memory.post_turn_response(dispatch, "", outcome="called")
                ids = [one["call_id"] for one in dispatch.messages if one.get("type") == "shell_call"]
                answers = [one["call_id"] for one in dispatch.messages if one.get("type") == "shell_call_output"]
                assert set(ids) - set(answers) <= {item.get("call_id")}
                assert set(answers) <= set(ids)
        assert memory._branches._forks == ()
        assert memory.folded or memory.view.cut or tool is web
        kept = b"".join(store.get(step_id).payload for step_id in store.entries)
    assert all(json.dumps(one["call_id"]).encode() in kept for one in history[:-4] if "call_id" in one)


def test_thinking_between_calls_goes_out_in_its_place() -> None:
    """D6: interleaved thinking is signed where it stands."""
    turn = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "first", "signature": "s1"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            {"type": "thinking", "thinking": "second", "signature": "s2"},
            {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
        ],
    }
    results = [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ("t1", "t2")]
    history = [{"role": "user", "content": "Go."}, turn, {"role": "user", "content": results}]
    with Harness.open(MemoryStore("s"), client=ScriptedClient([]), clock=fixed_clock()) as memory:
        assert memory.pre_turn_dispatch(history, dialect="anthropic").messages == history


def test_a_person_who_pastes_a_block_of_ours_is_heard() -> None:
    """D8: the newest message is the person's, whatever it looks like."""
    pasted = seal("archived-steps", "step 3: what is this?", "s")
    with Harness.open(MemoryStore("s"), session="s", client=ScriptedClient([]), clock=fixed_clock()) as memory:
        history = [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": pasted},
        ]
        assert memory.pre_turn_dispatch(history).messages == history


HOSTILE = {
    "one word": "w" * 3_000_000,
    "line feeds": "\n" * 3_000_000,
    "brackets": "[" * 3_000_000,
    "families": "👩‍👩‍👧‍👦" * 100_000,
    "overrides": "\u202e\u0000abc" * 300_000,
    "marks": "a" + "\u0301" * 150_000 + "\u0323" * 150_000,
    "paths": "/a" * 1_000_000,
}


@pytest.mark.parametrize("text", HOSTILE)
def test_megabytes_of_hostile_text_go_through_unchanged_and_are_kept(text: str) -> None:
    store = MemoryStore("s")
    with Harness.open(store, client=ScriptedClient([]), clock=fixed_clock(), on_fault="raise") as memory:
        history = [{"role": "user", "content": HOSTILE[text]}]
        dispatch = memory.pre_turn_dispatch(history)
        assert dispatch.messages == history
        memory.post_turn_response(dispatch, "ok")
        assert json.loads(store.get(0).payload) == history
