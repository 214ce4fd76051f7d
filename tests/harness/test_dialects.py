"""Three dialects: what is not ours to change goes out byte for byte (hazards C, D8, A16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock
from mmu.tokens import open_meter
from store import MemoryStore

METER = open_meter()
REQUESTS = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "requests"
LONG = "words " * 150
Body = dict[str, Any]


def open_memory(**policy: int) -> Harness:
    marks = {"high_water_tokens": 900, "low_water_tokens": 300, "keep_tokens": 200, "hot_line_tokens": 60, **policy}
    return Harness.open(
        MemoryStore("s"), policy=marks, client=ScriptedClient([]), clock=fixed_clock(), meter=METER, on_fault="raise"
    )


CALLED = {"choices": [{"message": {"tool_calls": [{}]}}]}


def thinking(number: int) -> list[Body]:
    answer: list[Body] = [
        {"type": "thinking", "thinking": f"step {number}", "signature": f"c2ln{number}"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": f"Reading part {number}."},
        {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": f"p{number}.py", "limit": 1.0}},
    ]
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [{"type": "text", "text": LONG}]}
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": [result]}]


def reasoning(number: int) -> list[Body]:
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"b3Bh{number}"},
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"c{number}",
            "name": "exec",
            "arguments": '{"cmd": "ls"}',
        },
        {"type": "function_call_output", "call_id": f"c{number}", "output": LONG},
    ]


def test_thinking_signatures_and_calls_of_a_long_turn_go_out_as_they_came() -> None:
    """C1 C4 C5: an answer that holds thinking is never edited, merged or moved."""
    history: list[Body] = [{"role": "user", "content": "Read it all."}]
    memory = open_memory()
    for number in range(12):
        history += thinking(number)
        dispatch = memory.pre_turn_dispatch(history, system=[{"type": "text", "text": "be brief"}])
        memory.post_turn_response(dispatch, CALLED)
        sent = [json.dumps(m) for m in dispatch.messages if m["role"] == "assistant"]
        assert sent == [json.dumps(m) for m in history if m["role"] == "assistant"]
    lines = [
        m["content"][0]["content"] for m in dispatch.messages if isinstance(m["content"], list) and m["role"] == "user"
    ]
    assert str(lines[0]).startswith("[archived: step 1, read, ")
    assert lines[-1] == [{"type": "text", "text": LONG}]
    assert json.loads(memory.store.get(1).payload) == history[1:3]


def test_a_reasoning_item_and_what_follows_it_leave_together() -> None:
    """C6 C7: the provider refuses one without the other."""
    memory = open_memory()
    history: list[Body] = []
    for turn in range(6):
        history.append({"type": "message", "role": "user", "content": f"Task {turn}: {LONG}"})
        history += reasoning(turn)
        history += [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}]
        dispatch = memory.pre_turn_dispatch([*history, {"type": "message", "role": "user", "content": "ok?"}])
        memory.post_turn_response(dispatch, "yes")
        kept = {one["id"][3:] for one in dispatch.messages if one["type"] == "reasoning"}
        assert kept == {one["id"][3:] for one in dispatch.messages if one["type"] == "function_call"}
    assert memory.folded


def test_hot_lines_join_the_next_user_message_where_roles_alternate() -> None:
    """D7 D8: the system prompt stays first, and no message is put between two others."""
    memory = open_memory()
    history: list[Body] = []
    for turn in range(6):
        history += [
            {"role": "user", "content": f"Task {turn}. {LONG}"},
            {"role": "assistant", "content": f"Done {turn}."},
        ]
    dispatch = memory.pre_turn_dispatch([*history, {"role": "user", "content": "And?"}], dialect="anthropic")
    assert dispatch.draft.folded
    first = dispatch.messages[0]["content"]
    assert first[0]["text"].startswith("<folded-steps ")
    assert first[1] == {"type": "text", "text": history[0]["content"]}


def test_words_behind_a_call_move_before_it() -> None:
    """A16: after an abort the retry text stands behind the call in one assistant message."""
    call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    torn: Body = {"role": "assistant", "content": [call, {"type": "text", "text": "again"}]}
    result: Body = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}
    dispatch = open_memory().pre_turn_dispatch([{"role": "user", "content": "go"}, torn, result])
    assert dispatch.messages[1]["content"] == [{"type": "text", "text": "again"}, call]


def marked(text: str) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}


def test_where_the_caller_marks_its_cache_a_mark_ends_the_prefix_before_the_block() -> None:
    """I13 I14: the caller's marks stay where they are, and never more than four go out."""
    for beside, expected in ((1, True), (4, False)):
        memory = open_memory(high_water_tokens=600)
        history: list[Body] = [
            {"role": "user", "content": "The harbour is Trieste."},
            {"role": "assistant", "content": "Noted."},
        ]
        for turn in range(5):
            history += [{"role": "user", "content": f"{turn} {LONG}"}, {"role": "assistant", "content": "ok"}]
        system = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}] * beside
        history.insert(2, {"role": "user", "content": "The captain is Ada."})
        history.insert(3, {"role": "assistant", "content": "Noted too."})
        dispatch = memory.pre_turn_dispatch([*history, marked("Who is captain?")], system=system, dialect="anthropic")
        assert dispatch.draft.hydrated
        sent = json.dumps(dispatch.messages)
        assert ('"cache_control"' in json.dumps(dispatch.messages[-2])) is expected
        assert sent.count('"cache_control"') + beside <= 5
        assert any("no cache mark" in fault for fault in dispatch.draft.faults) is not expected


def test_history_that_the_server_holds_is_left_alone_and_the_receipt_says_so() -> None:
    memory = Harness.open(MemoryStore("s"), client=ScriptedClient([]), clock=fixed_clock(), meter=METER)
    item = {"type": "message", "role": "user", "content": "and?"}
    dispatch = memory.pre_turn_dispatch([item], previous_response_id="resp_1")
    assert dispatch.messages == [item]
    assert "the server holds what came before resp_1" in dispatch.draft.faults[0]
    dispatch = memory.pre_turn_dispatch([{"type": "item_reference", "id": "msg_1"}, item])
    assert dispatch.draft.mode == "bypass"


def test_what_stands_before_a_server_compaction_is_recallable() -> None:
    """A compaction block hides what came before it from the model, though the client still sends it."""
    memory = open_memory(high_water_tokens=100_000)
    history: list[Body] = [
        {"role": "user", "content": "The harbour is Trieste."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "go on"},
        {
            "role": "assistant",
            "content": [{"type": "compaction", "content": "A talk."}, {"type": "text", "text": "yes"}],
        },
        {"role": "user", "content": "Which harbour?"},
    ]
    dispatch = memory.pre_turn_dispatch(history)
    assert [piece.step_id for piece in dispatch.draft.hydrated] == [0]
    assert dispatch.messages[3] == history[3]


@pytest.mark.parametrize(
    "name", ["claude_code_messages_turn3", "codex_responses_turn3", "opencode_chat_turn3", "aider_chat_turn2"]
)
def test_requests_of_real_agents_go_through_byte_for_byte(name: str) -> None:
    path = REQUESTS / f"{name}.json"
    if not path.is_file():
        pytest.skip("the shared requests are not part of the repository")
    body = json.loads(path.read_text(encoding="utf-8"))["body"]
    history = body.get("messages") or body["input"]
    memory = open_memory(high_water_tokens=10**6)
    dispatch = memory.pre_turn_dispatch(history, tools=body.get("tools"), system=body.get("system"))
    assert json.dumps(dispatch.messages) == json.dumps(history)
    assert dispatch.draft.faults == ()
    assert dispatch.draft.sent == dispatch.draft.full
