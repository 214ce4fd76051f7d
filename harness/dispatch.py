"""One model call: what is sent, and the draft of its receipt. Built from values by pure functions."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from harness import pairing
from harness.errors import PairingError
from harness.history import Dialect, History
from harness.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to send, and all that is needed to book the answer.

    `messages` are the caller's to change: nobody else holds them. `draft` is the receipt as far as it is known.
    """

    messages: list[dict[str, Any]]
    draft: Receipt
    token: object  # who may answer it

    @property
    def turn(self) -> int:
        """The user turn it belongs to, from 1."""
        return self.draft.turn


@dataclass(frozen=True, slots=True)
class Request:
    """Messages as they go out; S (tokens without what was brought back), tokens with it, and what hot lines cost."""

    messages: list[dict[str, Any]]
    baseline: int
    sent: int
    hot: int


def assemble(
    history: History, dialect: Dialect, *, folded: Container[int], hot_text: str, block: str, extra: int
) -> Request:
    """The request of a history: the folded steps (by position among its steps) left out, the hot lines after the leading
    system messages, the block in the newest user message. All else stands as it came, in its order.

    `extra` is what is sent beside the messages, in tokens. Raises PairingError if calls and results do not belong together.
    """
    gone = {place for at, step in enumerate(history.steps) if at in folded for place in step.positions}
    opening = history.steps[history.opening].positions[0] if history.opening is not None else None
    kept = [(place, m) for place, m in enumerate(history.messages) if place not in gone and m.kind != "ours"]
    out: list[dict[str, Any]] = []
    block_tokens = 0
    for place, message in kept:
        body = message.fresh()
        if block and place == opening:
            body = dialect.with_block(body, block)
            block_tokens = dialect.tokens(body) - message.tokens
        out.append(body)
    hot = 0
    if hot_text:
        head = next((at for at, (_, message) in enumerate(kept) if message.kind != "system"), len(kept))
        out.insert(head, dialect.user_message(hot_text))
        hot = dialect.tokens(out[head])
    if found := pairing.problems([message for _, message in kept]):
        raise PairingError(found)
    baseline = extra + hot + sum(message.tokens for _, message in kept)
    return Request(out, baseline, baseline + block_tokens, hot)
