"""Recorded sessions of others, run through the harness with small marks. They lie beside the repository, not in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, fixed_clock
from harness.recorded import load
from harness.runner import run
from store import MemoryStore

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "sessions" / "openai-chat"
FILES = sorted(FOLDER.rglob("*.json"))
MARKS = {"high_water_tokens": 900, "low_water_tokens": 300, "hot_line_tokens": 200}

pytestmark = pytest.mark.skipif(not FILES, reason=f"the shared recordings are not here ({FOLDER})")


def torn(messages: list[dict[str, Any]]) -> list[int]:
    """The places of results without a call right before them, and of calls that stay unanswered. Names no package code."""
    found, place = [], 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] == "tool":
            found.append(place - 1)
        owed = [call.get("id") for call in message.get("tool_calls") or []] if message["role"] == "assistant" else []
        begin = place - 1
        while owed and place < len(messages) and messages[place]["role"] == "tool":
            if messages[place].get("tool_call_id") not in owed:
                break
            owed.remove(messages[place].get("tool_call_id"))
            place += 1
        if owed and place < len(messages):
            found.append(begin)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_recorded_session_runs_valid_untouched_and_with_every_size_accounted_for(path: Path, meter: Any) -> None:
    for recorded in load(path):
        before = json.dumps([asked.history for asked in recorded.calls])
        store = MemoryStore(recorded.name)
        memory = Harness.open(store, policy=MARKS, meter=meter, clock=fixed_clock(), on_fault="raise")
        last = 0
        ran = list(run(memory, recorded))
        for one, asked in zip(ran, recorded.calls, strict=True):
            receipt = one.receipt
            assert torn(one.messages) == torn(asked.history) == []
            assert receipt.faults == ()
            assert receipt.sent - receipt.baseline == receipt.injected >= 0
            change = receipt.new - receipt.folded_tokens + receipt.hot_change + receipt.client_change
            assert receipt.baseline == last + change
            last = receipt.baseline
            if path.parent == FOLDER:  # one conversation that only grows; exchanges may be of several agents
                assert receipt.client_change == 0
                user = [m for m in asked.history if m["role"] == "user"]
                words = [m["content"] for m in one.messages if m["role"] == "user"]
                said = [text for text in words if not text.endswith(">") or not text.startswith("<archived-steps")]
                assert said[-1].endswith(user[-1]["content"])
                assert one.messages[0] == asked.history[0]
        assert json.dumps([asked.history for asked in recorded.calls]) == before
        assert store.validate().faults == ()
        if path.parent == FOLDER:
            assert memory.folded
            assert sum(one.receipt.sent for one in ran) < sum(one.receipt.full for one in ran)
