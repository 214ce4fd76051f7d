"""Drives a recording through a harness, call by call, as its own loop would have done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.clients import Client
from harness.harness import Harness
from harness.receipt import Receipt
from harness.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Ran:
    """One call of a run: what was sent, and its receipt."""

    messages: list[dict[str, Any]]
    receipt: Receipt


def run(memory: Harness, recorded: Recorded, *, client: Client | None = None, model: str = "mock") -> Iterator[Ran]:
    """Run every call. The recorded reply stands for the model's; with a `client` that one is asked as well, its answer
    booked, and the conversation still goes on as recorded.

    Exceptions of the client fly on, after their receipt is booked.
    """
    for asked in recorded.calls:
        dispatch = memory.pre_turn_dispatch(asked.history)
        reply: Any = asked.reply
        if client is not None:
            try:
                answer = client.complete(dispatch.messages, model=model)
            except BaseException:
                memory.post_turn_response(dispatch, outcome="failed")
                raise
            # Tool calls follow the recording, usage the model: the next history is the recorded one.
            reply = {"tool_calls": (asked.reply or {}).get("tool_calls"), "usage": getattr(answer, "usage", None)}
        yield Ran(dispatch.messages, memory.post_turn_response(dispatch, reply))
