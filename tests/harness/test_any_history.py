"""Random clients drive random histories through the harness in every dialect: append, edit, trim, compact, fork,
regenerate, abort, tool loops with parallel calls and failures. What must hold, holds at every dispatch."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness import Dispatch, Harness, ScriptedClient, fixed_clock
from mmu.tokens import open_meter
from store import MemoryStore

METER = open_meter()
SEALED = re.compile(r"<(archived-steps|folded-steps) ([0-9a-f]{16})>\n.*?\n</\1 \2>(\n\n)?", re.DOTALL)
Body = dict[str, Any]

LONG = bool(os.environ.get("MMU_LONG"))


@dataclass(frozen=True)
class User:
    """What a user said."""

    text: str


@dataclass(frozen=True)
class Exchange:
    """What an assistant said and called, and what came back; a call without a result was aborted."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    results: tuple[tuple[str, str], ...] = ()


Item = User | Exchange


def chat(items: list[Item]) -> list[Body]:
    out: list[Body] = [{"role": "system", "content": "be brief"}]
    for item in items:
        if isinstance(item, User):
            out.append({"role": "user", "content": item.text})
            continue
        body: Body = {"role": "assistant", "content": item.text or None}
        if item.calls:
            body["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": c})}}
                for i, c in item.calls
            ]
        out.append(body)
        out += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in item.results]
    return out


def anthropic(items: list[Item]) -> list[Body]:
    out: list[Body] = []
    for item in items:
        if isinstance(item, User):
            out.append({"role": "user", "content": [{"type": "text", "text": item.text}]})
            continue
        blocks: list[Body] = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
        blocks += [{"type": "text", "text": item.text}] if item.text else []
        blocks += [{"type": "tool_use", "id": i, "name": "bash", "input": {"command": c}} for i, c in item.calls]
        out.append({"role": "assistant", "content": blocks})
        if item.results:
            results = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in item.results]
            out.append({"role": "user", "content": results})
    return out


def responses(items: list[Item]) -> list[Body]:
    out: list[Body] = [{"type": "message", "role": "developer", "content": "be brief"}]
    for item in items:
        if isinstance(item, User):
            content = [{"type": "input_text", "text": item.text}]
            out.append({"type": "message", "role": "user", "content": content})
            continue
        out.append({"type": "reasoning", "summary": [], "encrypted_content": "b3BhcXVl"})
        if item.text:
            content = [{"type": "output_text", "text": item.text}]
            out.append({"type": "message", "role": "assistant", "content": content})
        for i, c in item.calls:
            out.append({"type": "function_call", "call_id": i, "name": "bash", "arguments": json.dumps({"command": c})})
        out += [{"type": "function_call_output", "call_id": i, "output": text} for i, text in item.results]
    return out


def check_chat(sent: list[Body]) -> None:
    pending: list[str] = []
    for body in sent:
        if body["role"] == "tool":
            pending.remove(body["tool_call_id"])
            continue
        assert not pending
        pending = [call["id"] for call in body.get("tool_calls") or ()]
        assert len(pending) == len(set(pending))
    assert not pending


def check_anthropic(sent: list[Body]) -> None:
    pending: list[str] = []
    for body in sent:
        blocks = body["content"] if isinstance(body["content"], list) else [{"type": "text", "text": body["content"]}]
        assert blocks
        assert all(block.get("text") != "" for block in blocks)
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answers) == sorted(pending), "all results stand in the message behind their calls"
        assert all(block["type"] == "tool_result" for block in blocks[: len(answers)]), "results come first"
        pending = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not pending


def check_responses(sent: list[Body]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for body in sent:
        if body["type"] == "function_call":
            assert body["call_id"] not in seen
            seen.add(body["call_id"])
            open_calls.append(body["call_id"])
        elif body["type"] == "function_call_output":
            open_calls.remove(body["call_id"])
    assert not open_calls


DIALECTS = {
    "openai-chat": (chat, check_chat),
    "anthropic": (anthropic, check_anthropic),
    "openai-responses": (responses, check_responses),
}


def words(value: Any) -> set[str]:
    """The marker words (`w12w`) in what is sent or shown."""
    return set(re.findall(r"w\d+w", json.dumps(value)))


def born(text: str) -> str:
    """The word that a text brought in: its newest."""
    return max(words(text), key=lambda word: int(word[1:-1]), default="")


def bare(sent: list[Body]) -> list[str]:
    """The messages without what the harness put in, as texts that can be compared; those that were only that are gone."""
    out = []
    for was in sent:
        body = json.loads(json.dumps(was))
        content = body.get("content")
        if isinstance(content, list):
            content = [
                {**b, "text": SEALED.sub("", b["text"])} if isinstance(b.get("text"), str) else b for b in content
            ]
            body["content"] = [b for b in content if b.get("text") != ""]
        elif isinstance(content, str):
            body["content"] = SEALED.sub("", content)
        if body.get("content") not in ("", []) or "content" not in body:
            out.append(json.dumps(body))
    return out


class Client(RuleBasedStateMachine):
    """A client with a history of its own, a harness that lives, and one that is restarted before every dispatch."""

    dialect: ClassVar[str] = "openai-chat"

    @initialize()
    def start(self) -> None:
        self.count = 0
        self.items: list[Item] = []
        self.line: set[str] = set()  # the words of everything on the line that the client is on
        self.live = self.open(MemoryStore("s"))
        self.store = MemoryStore("s")
        self.last: list[str] = []
        self.branch = ""
        self.last_baseline = 0
        self.grew = False
        self.opening()

    def open(self, store: MemoryStore) -> Harness:
        policy = {
            "high_water_tokens": 400,
            "low_water_tokens": 120,
            "keep_tokens": 60,
            "hot_line_tokens": 80,
            "max_rehydration_tokens_per_turn": 150,
            "max_rehydration_tokens_per_call": 60,
        }
        return Harness.open(
            store, policy=policy, client=ScriptedClient([]), clock=fixed_clock(), meter=METER, on_fault="raise"
        )

    def fresh(self, size: int = 20) -> str:
        """A text with a word of its own."""
        self.count += 1
        word = f"w{self.count}w"
        self.line.add(word)
        return f"{word} " + "filler text " * size

    def opening(self) -> None:
        self.items.append(User(self.fresh()))

    def mention(self, back: int) -> str:
        """A text that names something said before on this line."""
        known = sorted(self.line, key=lambda word: int(word[1:-1]))
        return f"what about {known[back % len(known)]}? {self.fresh(2)}"

    # -- what clients do

    def ends_with_user(self) -> bool:
        return bool(self.items) and isinstance(self.items[-1], User)

    @rule(back=st.integers(0, 30))
    def answer_and_ask(self, back: int) -> None:
        if self.ends_with_user() or (isinstance(self.items[-1], Exchange) and self.items[-1].calls):
            self.items.append(Exchange(self.fresh(4)))
        self.items.append(User(self.mention(back)))
        self.grew = True
        self.dispatch()

    @rule(calls=st.integers(1, 3), again=st.booleans(), swap=st.booleans())
    def call_tools(self, calls: int, again: bool, swap: bool) -> None:
        made = [(f"c{n}" if again else f"c{self.count}_{n}", f"run {n}") for n in range(calls)]
        results = [(i, self.fresh(12) + ("\n[exit 1]" if n else "")) for n, (i, _) in enumerate(made)]
        text = self.mention(calls) if swap else ""
        self.items.append(Exchange(text, tuple(made), tuple(reversed(results) if swap else results)))
        self.grew = True
        self.dispatch()

    @precondition(lambda self: isinstance(self.items[-1], Exchange) and self.items[-1].calls)
    @rule()
    def abort(self) -> None:
        last = self.items[-1]
        assert isinstance(last, Exchange)
        self.items[-1] = replace(last, results=last.results[:-1])
        self.items.append(User(self.fresh(3)))
        self.grew = False
        self.dispatch()

    @precondition(lambda self: self.ends_with_user())
    @rule()
    def edit_the_last_user_message(self) -> None:
        self.line -= {born(self.items[-1].text)}
        self.items[-1] = User(self.fresh(3))
        self.grew = False
        self.dispatch()

    @precondition(lambda self: len(self.items) > 4)
    @rule(keep=st.integers(2, 4))
    def trim_in_front(self, keep: int) -> None:
        tail = self.items[-keep:]
        while tail and not isinstance(tail[0], User):
            tail = tail[1:]
        if tail:
            self.items = tail
            self.grew = False
            self.dispatch()

    @precondition(lambda self: len(self.items) > 5)
    @rule(keep=st.integers(2, 4))
    def compact(self, keep: int) -> None:
        tail = self.items[-keep:]
        while tail and not isinstance(tail[0], User):
            tail = tail[1:]
        if tail:
            self.items = [User("Summary: " + self.fresh(3)), *tail]
            self.grew = False
            self.dispatch()

    @precondition(lambda self: sum(isinstance(item, User) for item in self.items) > 2)
    @rule(back=st.integers(1, 3))
    def fork(self, back: int) -> None:
        users = [at for at, item in enumerate(self.items) if isinstance(item, User)]
        at = users[max(1, len(users) - 1 - back)]
        gone = self.items[at:]
        if len(gone) < 2:
            return
        for item in gone:
            self.line -= {born(text) for text in (item.text, *(text for _, text in getattr(item, "results", ())))}
        self.items = [*self.items[:at], User(self.fresh(3))]
        self.grew = False
        self.dispatch()

    @rule()
    def send_again(self) -> None:
        self.grew = True
        self.dispatch()

    # -- what must hold

    def dispatch(self) -> None:
        render, check = DIALECTS[self.dialect]
        history = render(self.items)
        before = json.dumps(history)
        restarted = self.open(self.store)  # the process before was killed: nothing of it was closed
        sent = [self.send(harness, history) for harness in (self.live, restarted)]
        assert json.dumps(sent[0].messages) == json.dumps(sent[1].messages), "a restarted process sends the same bytes"
        assert json.dumps(history) == before, "the caller's list is never changed"
        messages, receipt = sent[0].messages, sent[0].draft
        check(messages)
        assert words(messages) <= self.line, "nothing of an abandoned line is sent"
        assert receipt.baseline == (
            self.last_baseline + receipt.new - receipt.folded_tokens + receipt.hot_change + receipt.client_change
        )
        if self.grew and receipt.branch == self.branch and not receipt.folded and not receipt.cut:
            assert bare(messages)[: len(self.last)] == self.last, "between folds the prefix is byte-stable"
            assert receipt.client_change == 0
        self.last, self.last_baseline, self.branch = bare(messages), receipt.baseline, receipt.branch

    def send(self, harness: Harness, history: list[Body]) -> Dispatch:
        dispatch = harness.pre_turn_dispatch(history, dialect=self.dialect)  # type: ignore[arg-type]
        answered = {"choices": [{"message": {"role": "assistant", "tool_calls": [{}]}}]}
        harness.post_turn_response(dispatch, answered)  # the turn goes on until a user says something else
        return dispatch

    @invariant()
    def the_store_is_sound(self) -> None:
        if hasattr(self, "live"):
            assert self.live.store.validate().faults == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_client_in_any_order(dialect: str) -> None:
    machine = type("Machine", (Client,), {"dialect": dialect})
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=400 if LONG else 12,
            stateful_step_count=40 if LONG else 12,
            phases=[Phase.explicit, Phase.generate],
            print_blob=False,
            deadline=None,
            suppress_health_check=checks,
            derandomize=True,
        ),
    )
