"""The two demonstration sessions: what the product promises, recounted from the bytes that were sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, fixed_clock
from harness.demo import Story, outcome, stories
from harness.receipt import Receipt
from mmu.tokens import Meter, open_meter
from store import MemoryStore

BLOCK = re.compile(r"\A<archived-steps ([0-9a-f]{16})>\n.*?\n</archived-steps \1>(\n\n|\Z)", re.DOTALL)
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Sent:
    """One call of a run."""

    history: Messages
    messages: Messages
    receipt: Receipt


@dataclass(frozen=True)
class Session:
    """A demonstration that was run once for all tests here."""

    story: Story
    calls: tuple[Sent, ...]


METER = open_meter()


def drive(story: Story) -> Iterator[Sent]:
    memory = Harness.open(
        MemoryStore(story.recorded.name), policy=story.policy, clock=fixed_clock(), meter=METER, on_fault="raise"
    )
    for asked in story.recorded.calls:
        before = json.dumps(asked.history)
        dispatch = memory.pre_turn_dispatch(asked.history)
        sent = json.loads(json.dumps(dispatch.messages))
        yield Sent(asked.history, sent, memory.post_turn_response(dispatch, asked.reply))
        assert json.dumps(asked.history) == before, "the caller's list is never changed"
    assert memory.store.validate().faults == ()


@pytest.fixture(scope="module", params=[0, 1], ids=["scenario", "relay"])
def session(request: pytest.FixtureRequest) -> Session:
    story = stories()[request.param]
    return Session(story, tuple(drive(story)))


def tokens(messages: Messages, meter: Meter) -> int:
    """What a request costs, counted anew: 3 for the request, 4 for each message and each call, and every text."""
    total = 3
    for message in messages:
        total += 4 + meter.count(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            total += 4 + meter.count(call["function"]["name"]) + meter.count(call["function"]["arguments"])
    return total


def without_block(messages: Messages) -> Messages:
    """The messages without what was brought back: text in front of a message, or a message of its own behind a result."""
    bare = [{**m, "content": BLOCK.sub("", m["content"])} if m.get("content") else m for m in messages]
    return [m for m, was in zip(bare, messages, strict=True) if m.get("content") != "" or was.get("content") == ""]


def assert_valid(messages: Messages) -> None:
    """Every result follows its call, every call is answered before the next message that is no result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, f"unanswered: {open_calls}"
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls


def test_every_dispatch_is_valid_and_keeps_the_system_message_and_the_newest_one(session: Session) -> None:
    for call in session.calls:
        assert_valid(call.messages)
        assert call.messages[0] == call.history[0]
        assert without_block(call.messages)[-1] == call.history[-1]


def test_s_is_what_was_sent_without_the_block_and_returns_after_each_call(session: Session) -> None:
    last = 0
    for call in session.calls:
        receipt = call.receipt
        assert receipt.sent == tokens(call.messages, METER)
        assert receipt.baseline == tokens(without_block(call.messages), METER)
        assert receipt.full == tokens(call.history, METER)
        assert receipt.baseline == last + receipt.new - receipt.folded_tokens + receipt.hot_change
        last = receipt.baseline


def test_within_a_turn_what_stands_before_is_byte_equal_to_the_last_dispatch(session: Session) -> None:
    by_turn: dict[int, Messages] = {}
    for call in session.calls:
        before = by_turn.get(call.receipt.turn)
        if before is not None and not call.receipt.cut:
            assert call.messages[: len(before)] == before, f"turn {call.receipt.turn}"
        by_turn[call.receipt.turn] = call.messages


def test_between_folds_what_stands_before_the_newest_message_is_byte_equal_to_the_last_dispatch(
    session: Session,
) -> None:
    previous: Messages = []
    for call in session.calls:
        if previous and not call.receipt.folded and not call.receipt.cut:
            shared = without_block(previous)
            assert without_block(call.messages)[: len(shared)] == shared
        previous = call.messages


def test_what_is_injected_stays_within_the_budget_and_is_gone_on_the_next_turn(session: Session) -> None:
    budget = session.story.policy.max_rehydration_tokens_per_turn
    for call in session.calls:
        assert sum(piece.tokens for piece in call.receipt.hydrated) <= budget
        blocks = [m for m in call.messages if BLOCK.match(m.get("content") or "")]
        assert bool(blocks) == bool(call.receipt.hydrated)
    assert any(call.receipt.evicted for call in session.calls)


def test_the_prompt_stays_small_while_the_history_grows(session: Session) -> None:
    last, policy = session.calls[-1].receipt, session.story.policy
    newest = max(call.receipt.new for call in session.calls)
    assert last.full > 2 * policy.high_water_tokens
    assert all(c.receipt.sent < policy.high_water_tokens + policy.keep_tokens + newest for c in session.calls)
    assert any(call.receipt.folded for call in session.calls)


def test_the_questions_of_the_seed_bring_back_the_newest_states_and_nothing_outdated() -> None:
    story = stories()[0]
    receipts = [call.receipt for call in drive(story)]
    picked = {r.turn: [piece.step_id for piece in r.hydrated] for r in receipts}
    assert [picked[probe.turn] for probe in story.probes] == [[137], [342, 137, 447]]
    assert [outcome(probe, receipts) for probe in story.probes] == ["all", "all"]


def test_the_figures_of_the_readme_are_those_of_the_demo(session: Session) -> None:
    receipts = [call.receipt for call in session.calls]
    sent, full = sum(r.sent for r in receipts), sum(r.full for r in receipts)
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"| {len(receipts)} | {full:,} | " in readme
    told = re.search(rf"\| {len(receipts)} \| {full:,} \| ([\d,]+) ", readme)
    assert told is not None
    assert abs(int(told[1].replace(",", "")) - sent) < 0.002 * sent, (
        "the session's name stands in hashes, which cost tokens"
    )


def test_the_recorded_session_is_as_long_as_it_claims() -> None:
    story = stories()[1]
    messages: list[Mapping[str, Any]] = story.recorded.document["messages"]
    assert tokens([dict(m) for m in messages], METER) >= 60_000
    assert sum(m["role"] in ("user", "assistant") for m in messages) >= 150
    longest = run = 0
    for message in messages:
        run = 0 if message["role"] == "user" else run + len(message.get("tool_calls") or ())
        longest = max(longest, run)
    assert longest >= 60
