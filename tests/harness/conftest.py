"""A caller's own loop around a harness, which checks after each call what must hold at every one; and independent counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from harness import Harness, Receipt, ScriptedClient, fixed_clock
from mmu.tokens import Meter, image_tokens, open_meter
from store import MemoryStore

BLOCK = re.compile(r"<archived-steps ([0-9a-f]{16})>\n.*?\n</archived-steps \1>", re.DOTALL)


def filler(number: int) -> str:
    """Some 90 tokens of words that no other text holds."""
    return " ".join(f"zq{number}x{word}" for word in range(18))


Messages = list[dict[str, Any]]


def without_block(message: dict[str, Any]) -> dict[str, Any]:
    """A sent message with the block of ours cut out, by the letters of the format alone."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": re.sub(rf"\A{BLOCK.pattern}\n\n", "", content, flags=re.DOTALL)}
    if isinstance(content, list) and content and BLOCK.fullmatch(str(content[0].get("text", ""))):
        return {**message, "content": content[1:]}
    return message


def count_message(message: dict[str, Any], meter: Meter) -> int:
    """Tokens of a message, counted without the package's own reader."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    pictures = [part for part in parts if part.get("type") == "image_url"]
    total = 4 + sum(map(meter.count, texts)) + len(pictures) * image_tokens(None, None, None)
    for call in message.get("tool_calls") or []:
        total += 4 + meter.count(call["function"]["name"]) + meter.count(call["function"]["arguments"])
    return total


def pairing_faults(messages: Messages) -> list[str]:
    """What a strict provider would refuse: each call is answered in the messages right behind it, and nothing else is."""
    faults: list[str] = []
    owed: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id", "") in owed:
                owed.remove(message.get("tool_call_id", ""))
            else:
                faults.append(f"{place}: result without call")
        elif message["role"] in ("user", "assistant"):
            faults += [f"{place}: {call!r} not answered" for call in owed]
            owed = [call.get("id") or "" for call in message.get("tool_calls") or []]
    return faults


class Loop:
    """The loop of a caller: keeps the history, sends it, appends the answers.

    After each call it checks: the caller's list is as it was; calls and results belong together; S, recounted from the
    bytes sent with the block cut out, is the receipt's; S = last S + new - folded + hot lines; within a turn everything
    sent before stands unchanged at the front.
    """

    def __init__(self, memory: Harness, meter: Meter, history: Messages | None = None) -> None:
        self.memory, self.meter = memory, meter
        self.history: Messages = [{"role": "system", "content": "You help."}] if history is None else history
        self.sent: list[Messages] = []
        self.receipts: list[Receipt] = []
        self.tools: Any = None

    filler = staticmethod(filler)

    @staticmethod
    def call(name: str, arguments: dict[str, Any], call_id: str = "c1") -> dict[str, Any]:
        """A tool call as a model writes it."""
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}

    @staticmethod
    def calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
        """An assistant message that calls tools."""
        return {"role": "assistant", "content": content, "tool_calls": list(calls)}

    @staticmethod
    def result(text: Any, call_id: str = "c1") -> dict[str, Any]:
        """What a tool answered."""
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def exchange(self, name: str, arguments: dict[str, Any], text: Any, call_id: str = "c1") -> Messages:
        """One call and its result."""
        return [self.calling(self.call(name, arguments, call_id)), self.result(text, call_id)]

    def send(self, reply: Any, *, changed: bool = False, continues: bool = False) -> Receipt:
        """One call with its checks; `changed`: the caller changed old messages; `continues`: the turn goes on."""
        before = json.dumps(self.history)
        dispatch = self.memory.pre_turn_dispatch(self.history, tools=self.tools)
        sent = json.loads(json.dumps(dispatch.messages))
        receipt = self.memory.post_turn_response(dispatch, reply)
        assert json.dumps(self.history) == before, "the caller's list is never changed"
        assert pairing_faults(sent) == pairing_faults(self.history) == []
        extra = 3 + (self.meter.count(json.dumps(self.tools, separators=(",", ":"))) if self.tools else 0)
        if receipt.mode == "active":
            assert receipt.sent == extra + sum(count_message(message, self.meter) for message in sent)
            own = [without_block(m) for m in sent if not BLOCK.fullmatch(str(m.get("content")))]
            assert receipt.baseline == extra + sum(count_message(m, self.meter) for m in own)
            last = self.receipts[-1].baseline if self.receipts else 0
            change = receipt.new - receipt.folded_tokens + receipt.hot_change
            assert receipt.baseline == last + change + receipt.client_change
            assert changed or receipt.client_change == 0
        if continues:
            assert json.dumps(sent[: len(self.sent[-1])]) == json.dumps(self.sent[-1]), "the prefix is money"
        self.sent.append(sent)
        self.receipts.append(receipt)
        return receipt

    def ask(self, content: Any, *replies: Any, changed: bool = False) -> Receipt:
        """A user turn. A reply is a text, or a list: an assistant message that calls tools and then their results.

        The receipt is that of the turn's first call.
        """
        self.history.append({"role": "user", "content": content})
        first = len(self.receipts)
        for number, reply in enumerate(replies or ("ok",)):
            messages = [{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply
            self.send(messages[0], changed=changed and number == 0, continues=number > 0)
            self.history += messages
        return self.receipts[first]

    def chat(self, turns: int, start: int = 0) -> None:
        """Turns of small talk, some 90 tokens each, that nothing else asks for."""
        for number in range(start, start + turns):
            assert self.ask(filler(number), "ok").hydrated == ()

    def request(self, number: int = -1) -> str:
        """What was sent at a call, as JSON text."""
        return json.dumps(self.sent[number], ensure_ascii=False)

    def opening(self, number: int = -1) -> int:
        """The place of the newest user message in what was sent at a call."""
        return max(place for place, message in enumerate(self.sent[number]) if message["role"] == "user")

    def prompt(self, number: int = -1) -> str:
        """The text of the newest user message that was sent at a call."""
        content = self.sent[number][self.opening(number)]["content"]
        return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


MakeLoop = Callable[..., Loop]
"""Called with a store (a new memory store if missing), a `history` to go on with, and options of `Harness.open`."""


@pytest.fixture(scope="session")
def meter() -> Meter:
    """The real vocabulary, read once."""
    made = open_meter()
    made.count("warm")
    return made


@pytest.fixture
def make_loop(meter: Meter) -> MakeLoop:
    """Loops over harnesses with small marks, so that a few turns of small talk fold."""

    def make(store: Any = None, *, history: Messages | None = None, **options: Any) -> Loop:
        marks = {"high_water_tokens": 400, "low_water_tokens": 150, **options.pop("policy", {})}
        options = {"on_fault": "raise", "clock": fixed_clock(), "client": ScriptedClient([]), "meter": meter, **options}
        memory = Harness.open(MemoryStore() if store is None else store, policy=marks, **options)
        return Loop(memory, meter, history)

    return make


@pytest.fixture
def loop(make_loop: MakeLoop) -> Loop:
    """A loop over a fresh memory store."""
    return make_loop()
