"""Histories that clients change, as goldens: which steps are known, which are new, on which branch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock
from store import MemoryStore

CASES = sorted((Path(__file__).parent.parent.parent / "fixtures" / "align").glob("*.json"))


def message(short: str | dict[str, Any]) -> dict[str, Any]:
    """`user: text`, `assistant: text`, `call ID: command`, `result ID: text`; anything else stands as it is."""
    if not isinstance(short, str):
        return short
    head, _, text = short.partition(": ")
    kind, _, call_id = head.partition(" ")
    if kind == "call":
        function = {"name": "bash", "arguments": json.dumps({"command": text})}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
    if kind == "result":
        return {"role": "tool", "tool_call_id": call_id, "content": text}
    return {"role": kind, "content": text}


def memory(store: MemoryStore, **policy: int) -> Harness:
    return Harness.open(store, policy=policy, client=ScriptedClient([]), clock=fixed_clock(), on_fault="raise")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_changed_history_goes_where_it_belongs(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    harness = memory(MemoryStore("main"))
    for history, expected in zip(case["histories"], case["expect"], strict=True):
        dispatch = harness.pre_turn_dispatch(list(map(message, history)), dialect=case.get("dialect"))
        assert list(dispatch.step_ids) == expected["ids"], case["about"]
        assert dispatch.draft.branch.removeprefix("main") == expected["branch"].removeprefix("main"), case["about"]
        if "withdrawn" in expected:
            assert sorted(harness.view.withdrawn) == expected["withdrawn"]
        harness.post_turn_response(dispatch, "ok")
    assert harness.store.validate().faults == ()


def test_there_are_at_least_fifteen_goldens() -> None:
    assert len(CASES) >= 15


LONG = " ".join(["words"] * 120)


def test_nothing_is_recalled_from_an_abandoned_branch_and_both_go_on() -> None:
    harness = memory(MemoryStore("main"), high_water_tokens=200, low_water_tokens=60)
    shared = ["user: we plan a trip", "assistant: fine", f"user: {LONG}", "assistant: long"]
    first = [
        *shared,
        "user: harbour Trieste, pier 12, boat Luna",
        "assistant: noted",
        f"user: {LONG} again",
        "assistant: yes",
    ]
    second = [
        *shared,
        "user: harbour Rijeka, pier 7, boat Mira",
        "assistant: noted",
        f"user: {LONG} more",
        "assistant: yes",
    ]

    def ask(history: list[str], question: str) -> str:
        dispatch = harness.pre_turn_dispatch([*map(message, history), {"role": "user", "content": question}])
        harness.post_turn_response(dispatch, "ok")
        return str(dispatch.messages[-1]["content"])

    assert "Trieste" in ask(first, "Which harbour?")
    answer = ask(second, "Name the harbour")
    assert "Rijeka" in answer
    assert "Trieste" not in answer
    first += ["user: Which harbour?", "assistant: that one", f"user: {LONG}", "assistant: so"]
    second += ["user: Name the harbour", "assistant: this one", f"user: {LONG}", "assistant: so"]
    assert "Luna" in ask(first, "Which boat?")
    answer = ask(second, "Which pier?")
    assert "Rijeka" in answer
    assert "Luna" not in answer


def test_a_withdrawn_prompt_is_not_recalled_until_it_is_shown_again() -> None:
    harness = memory(MemoryStore("main"))
    start = ["user: hello", "assistant: hi"]
    harness.post_turn_response(
        harness.pre_turn_dispatch(list(map(message, [*start, "user: the code is zanzibar"]))), "ok"
    )
    again = list(map(message, [*start, "user: never mind", "assistant: ok", "user: what about zanzibar?"]))
    dispatch = harness.pre_turn_dispatch(again)
    assert dispatch.draft.hydrated == ()
    assert dispatch.messages == again


def test_branches_survive_a_restart(tmp_path: Path) -> None:
    base = ["user: a", "assistant: b", "user: c", "assistant: d", "user: e"]
    other = ["user: a", "assistant: b", "user: x"]
    seen = []
    for history in (base, other, [*base, "assistant: f", "user: g"], [*other, "assistant: y", "user: z"]):
        with Harness.open(tmp_path / ".mmu", session="main", clock=fixed_clock(), on_fault="raise") as harness:
            dispatch = harness.pre_turn_dispatch(list(map(message, history)))
            seen.append((dispatch.draft.branch, dispatch.step_ids))
            harness.post_turn_response(dispatch, "ok")
    assert seen == [
        ("main", (0, 1, 2, 3, 4)),
        ("main~2", (0, 1, 2)),
        ("main", (0, 1, 2, 3, 4, 5, 6)),
        ("main~2", (0, 1, 2, 3, 4)),
    ]
