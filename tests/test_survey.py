"""A recorded agent session of more than 150,000 tokens: few prompts, hundreds of calls on each, default marks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, HydrationPolicy, Receipt, fixed_clock
from harness.recorded import load
from harness.runner import run
from store import MemoryStore

SURVEY = Path(__file__).parent.parent / "fixtures" / "sessions" / "survey.json.gz"
POLICY = HydrationPolicy()


@pytest.fixture(scope="module")
def calls() -> list[tuple[Receipt, float]]:
    """The receipts of every call, and the share of the last request's messages that stand unchanged in front."""
    memory = Harness.open(MemoryStore("survey"), policy=POLICY, clock=fixed_clock(), on_fault="raise")
    made: list[tuple[Receipt, float]] = []
    before: list[Any] = []
    for ran in run(memory, load(SURVEY)[0]):
        same = next((n for n, (a, b) in enumerate(zip(before, ran.messages, strict=False)) if a != b), len(before))
        made.append((ran.receipt, same / len(before) if before else 1.0))
        before = ran.messages
    assert memory.store.validate().faults == ()
    return made


def test_the_session_is_as_long_as_it_claims(calls: list[tuple[Receipt, float]]) -> None:
    assert calls[-1][0].full > 150_000
    assert len(calls) > 700
    messages = load(SURVEY)[0].document["messages"]
    assert len({call["id"] for m in messages for call in m.get("tool_calls") or ()}) < sum(
        len(m.get("tool_calls") or ()) for m in messages
    ), "some call ids repeat"


def test_requests_stay_under_the_high_mark_and_the_newest_exchanges(calls: list[tuple[Receipt, float]]) -> None:
    newest = max(receipt.new for receipt, _ in calls)
    peak = max(receipt.baseline for receipt, _ in calls)
    print(f"\nthe prompt without what was brought back peaks at {peak:,} tokens")
    assert peak <= POLICY.high_water_tokens + newest
    assert all(r.injected <= POLICY.max_rehydration_tokens_per_turn * 1.6 for r, _ in calls), "blocks with envelopes"


def test_every_size_is_accounted_for(calls: list[tuple[Receipt, float]]) -> None:
    last = 0
    for receipt, _ in calls:
        assert receipt.faults == ()
        assert receipt.client_change == 0
        assert receipt.baseline == last + receipt.new - receipt.folded_tokens + receipt.hot_change
        last = receipt.baseline


def test_the_prefix_breaks_only_where_something_folds_or_a_turn_begins(calls: list[tuple[Receipt, float]]) -> None:
    for (before, _), (receipt, same) in pairwise(calls):
        if not receipt.folded and not receipt.cut and receipt.turn == before.turn:
            assert same == 1.0, json.dumps(receipt.document())[:300]
    assert sum(bool(receipt.folded or receipt.cut) for receipt, _ in calls) < len(calls) // 50, "batches only"
    stable = sum(same == 1.0 for _, same in calls) / len(calls)
    print(f"\n{100 * stable:.1f} % of the requests begin with the whole last request")
    assert sum(receipt.sent for receipt, _ in calls) < 0.5 * sum(receipt.full for receipt, _ in calls)
