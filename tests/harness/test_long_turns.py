"""One prompt, hundreds of calls: results leave inside the turn, what the agent mentions comes back, whole steps leave at
its end (ipcf.md 7 and 8; hazards A2, A11, A14, D6, K8, K10, K17)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from harness import Clock, Harness, ScriptedClient, fixed_clock
from mmu.tokens import open_meter
from store import MemoryStore

METER = open_meter()
LINE = re.compile(r"\[archived: step (\d+), bash(, exit \d+)?, [\d,]+ tokens\]")


def open_memory(store: MemoryStore | None = None, clock: Clock | None = None, **policy: int) -> Harness:
    marks = {"high_water_tokens": 9000, "low_water_tokens": 3000, "keep_tokens": 1200, "hot_line_tokens": 100, **policy}
    client = ScriptedClient([])
    return Harness.open(
        store or MemoryStore("s"),
        policy=marks,
        client=client,
        clock=clock or fixed_clock(),
        meter=METER,
        on_fault="raise",
    )


def call(number: int, command: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def long_turn(length: int, size: int = 150) -> list[dict[str, Any]]:
    history = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "Refactor all modules."}]
    for number in range(length):
        text = f"output of module_{number} " + f"line{number} " * size + "\n[exit 1]" * (number % 2)
        history += [call(number, f"module_{number}.sh"), result(number, text)]
    return history


def dispatches(harness: Harness, history: list[dict[str, Any]]) -> list[Any]:
    """Every dispatch of a loop, from the prompt on, each answered with the next call."""
    made = []
    for end in range(2, len(history) + 1, 2):
        dispatch = harness.pre_turn_dispatch(history[:end])
        harness.post_turn_response(dispatch, {"choices": [{"message": {"tool_calls": [{}]}}]})
        made.append(dispatch)
    return made


def test_a_turn_of_many_calls_stays_under_the_high_mark_and_its_newest_exchanges() -> None:
    harness = open_memory()
    made = dispatches(harness, long_turn(60))
    newest = max(dispatch.draft.new for dispatch in made)
    assert made[-1].draft.full > 2 * 9000
    assert max(dispatch.draft.baseline for dispatch in made) <= 9000 + newest


def test_only_results_leave_inside_a_turn_and_each_leaves_one_stable_line() -> None:
    harness = open_memory()
    history = long_turn(40)
    last = dispatches(harness, history)[-1]
    assert last.draft.folded == ()
    by_id = {m["tool_call_id"]: m["content"] for m in last.messages if m["role"] == "tool"}
    cut = [number for number in range(40) if LINE.fullmatch(by_id[f"c{number}"])]
    assert cut == list(range(len(cut)))
    assert 20 < len(cut) <= 38
    assert "exit 1" in by_id["c1"]
    calls = [m for m in last.messages if m["role"] == "assistant"]
    assert calls == [m for m in history if m["role"] == "assistant"], "calls, ids and arguments are untouched"
    assert next(m["content"] for m in last.messages if m["role"] == "user") == "Refactor all modules."


def test_between_two_folds_the_prefix_of_a_long_turn_is_byte_equal() -> None:
    harness = open_memory()
    made = dispatches(harness, long_turn(50))
    breaks = 0
    for before, after in pairwise(made):
        if after.draft.cut:
            breaks += 1
        else:
            assert after.messages[: len(before.messages)] == before.messages
    assert 0 < breaks < len(made) // 5, "batches only"


def test_whole_steps_leave_when_the_turn_is_over() -> None:
    harness = open_memory()
    history = long_turn(40)
    made = dispatches(harness, history)
    cut = harness.view.cut
    history += [{"role": "assistant", "content": "All done."}, {"role": "user", "content": "Thanks."}]
    after = harness.pre_turn_dispatch(history)
    assert cut <= set(after.draft.folded)
    assert harness.view.cut == frozenset()
    assert after.draft.baseline < made[-1].draft.baseline


def test_what_the_agent_mentions_comes_back_behind_its_exchange_and_stays_in_place() -> None:
    harness = open_memory()
    history = long_turn(30)
    dispatches(harness, history)
    history += [call(30, "grep -n retry module_3.sh"), result(30, "3: retry")]
    asked = harness.pre_turn_dispatch(history)
    assert 7 in [piece.step_id for piece in asked.draft.hydrated], "step 7 is the exchange of module_3"
    assert "line3 line3" in asked.messages[-1]["content"]
    harness.post_turn_response(asked, {"choices": [{"message": {"tool_calls": [{}]}}]})
    history += [call(31, "true"), result(31, "")]
    following = harness.pre_turn_dispatch(history)
    if not following.draft.cut:
        assert following.messages[: len(asked.messages)] == asked.messages
    harness.post_turn_response(following, "done")
    assert following.draft.hydrated == asked.draft.hydrated


def test_all_blocks_of_a_turn_stay_within_its_budget() -> None:
    harness = open_memory(max_rehydration_tokens_per_turn=200, max_rehydration_tokens_per_call=150)
    history = long_turn(30)
    for number in range(12):
        history += [call(30 + number, f"diff module_{number}.sh module_{number + 1}.sh"), result(30 + number, "same")]
    last = dispatches(harness, history)[-1]
    assert sum(piece.tokens for piece in last.draft.hydrated) <= 200


def test_a_process_that_dies_in_the_middle_of_a_turn_is_followed_by_one_that_sends_the_same_bytes() -> None:
    one, other = MemoryStore("s"), MemoryStore("s")
    living = open_memory(one)
    history = long_turn(36)
    for end in range(2, len(history) + 1, 2):
        restarted = open_memory(other)  # nothing of the one before was closed or answered
        sent = [harness.pre_turn_dispatch(history[:end]).messages for harness in (living, restarted)]
        assert sent[0] == sent[1]


def test_an_open_call_and_a_pinned_step_stay_as_they_are() -> None:
    harness = open_memory()
    history = long_turn(10)
    harness.post_turn_response(harness.pre_turn_dispatch(history[:4]), {"choices": [{"message": {"tool_calls": [{}]}}]})
    harness.pin(1)
    last = dispatches(harness, long_turn(40))[-1]
    by_id = {m["tool_call_id"]: m["content"] for m in last.messages if m["role"] == "tool"}
    assert by_id["c0"].startswith("output of module_0")
    assert LINE.fullmatch(by_id["c1"])


def test_a_pause_longer_than_the_cache_lives_is_used_to_fold() -> None:
    now = [1_000_000.0]
    harness = open_memory(clock=Clock(lambda: now[0], lambda: 0.0), high_water_tokens=100_000)
    history = long_turn(20)
    warm = dispatches(harness, history)[-1]
    assert warm.draft.cut == ()
    now[0] += 301
    cold = harness.pre_turn_dispatch([*history, call(20, "true"), result(20, "ok")])
    assert cold.draft.cut
    assert cold.draft.baseline < warm.draft.baseline


class TooLong(Exception):
    """What litellm raises when the window is exceeded."""


TooLong.__name__ = "ContextWindowExceededError"


def test_one_emergency_fold_answers_an_overflow() -> None:
    harness = open_memory(high_water_tokens=100_000, low_water_tokens=90_000)
    harness.client = ScriptedClient([TooLong("too long"), "fits now"])
    reply = harness.completion(model="scripted", messages=long_turn(30))
    assert reply["choices"][0]["message"]["content"] == "fits now"
    first, second = harness.receipts
    assert (first.outcome, second.outcome) == ("overflow", "answered")
    assert second.sent < first.sent / 2


def test_an_overflow_that_nothing_can_answer_is_the_callers_with_a_word_of_why() -> None:
    harness = open_memory()
    harness.client = ScriptedClient([TooLong("too long")])
    with pytest.raises(TooLong) as caught:
        harness.completion(model="scripted", messages=[{"role": "user", "content": "word " * 400}])
    assert "nothing more may leave" in caught.value.__notes__[0]
    assert len(harness.client.requests) == 1, "one try for one overflow"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<system-reminder>\nToday is Monday.\n</system-reminder>", None),
        ("<environment_context>\n<cwd>/src</cwd>\n</environment_context>", None),
        ("<system-reminder>x</system-reminder>\nNow the tests, please.", "Now the tests, please."),
    ],
)
def test_a_harness_reminder_opens_no_turn_and_only_what_remains_is_scanned(text: str, words: str | None) -> None:
    harness = open_memory()
    history = [{"role": "user", "content": "Go on."}, call(0, "ls"), result(0, "a.py")]
    harness.post_turn_response(harness.pre_turn_dispatch(history[:1]), {"choices": [{"message": {"tool_calls": [{}]}}]})
    dispatch = harness.pre_turn_dispatch([*history, {"role": "user", "content": text}])
    assert dispatch.turn == (1 if words is None else 2)
