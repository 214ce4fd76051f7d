"""One model call: what is sent, and the draft of its receipt. Built from values by pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness import pairing
from harness.errors import PairingError
from harness.history import Dialect
from harness.pairing import Form
from harness.reading import Beside
from harness.receipt import Receipt
from harness.view import PlacedBlock

MOST_MARKS = 4  # cache marks that a provider takes in one request


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to send, and all that is needed to book the answer.

    `messages` are the caller's to change: nobody else holds them. `step_ids` are the ids of the history's steps, in order.
    `draft` is the receipt as far as it is known.
    """

    messages: list[dict[str, Any]]
    draft: Receipt
    token: object  # who may answer it
    step_ids: tuple[int, ...] = ()

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
    notes: tuple[str, ...] = ()


def assemble(
    outgoing: Sequence[tuple[int | None, Form]],
    dialect: Dialect,
    *,
    hot_text: str,
    blocks: Sequence[PlacedBlock],
    opening: int | None,
    beside: Beside,
) -> Request:
    """The request of some outgoing messages (each with its step): the hot lines after the leading system messages, the
    opening block in the message at position `opening`, further blocks behind the exchanges that asked for them.

    All else stands as it came, in its order. Raises PairingError if calls and results do not belong together.
    """
    messages = [message for _, (_, message) in outgoing]
    if found := pairing.problems(messages, dialect):
        raise PairingError(found)
    bodies = [[message.fresh()] for message in messages]  # a message, and what is put behind it
    injected, notes = 0, list[str]()
    for block in blocks:
        at = _place(outgoing, block, opening)
        if at is None:
            notes.append(f"the block for step {block.step_id} has no place any more")
            continue
        before = sum(map(dialect.tokens, bodies[at]))
        if block.tail:
            bodies[at] = dialect.with_tail(bodies[at], block.text)
        else:
            bodies[at][0] = dialect.with_block(bodies[at][0], block.text)
            notes += _mark_before(bodies, at, messages, dialect, beside)
        injected += sum(map(dialect.tokens, bodies[at])) - before
    sent = [body for group in bodies for body in group]
    hot = 0
    if hot_text:
        head = next((at for at, message in enumerate(messages) if message.kind != "system"), len(messages))
        beside_hot = sum(map(dialect.tokens, sent[head : head + 1]))
        dialect.with_hot_lines(sent, head, hot_text)
        grown = 1 + len(sent) - sum(map(len, bodies))
        hot = sum(map(dialect.tokens, sent[head : head + grown])) - beside_hot
    baseline = beside.tokens + hot + sum(message.tokens for message in messages)
    return Request(sent, baseline, baseline + injected, hot, tuple(notes))


def _place(outgoing: Sequence[tuple[int | None, Form]], block: PlacedBlock, opening: int | None) -> int | None:
    """Where a block stands among the outgoing messages."""
    for at in range(len(outgoing) - 1, -1, -1):
        step_id, (position, message) = outgoing[at]
        if block.tail:
            if step_id == block.step_id:
                return at
        elif position == opening and message.kind != "assistant":
            return at
    return None


def _mark_before(
    bodies: list[list[dict[str, Any]]], at: int, messages: Sequence[Any], dialect: Dialect, beside: Beside
) -> list[str]:
    """Where the caller marks its cache, end the cached prefix right before the block: what stands behind it will leave."""
    used = beside.marks + sum(message.raw.count(b'"cache_control":') for message in messages)
    if not used or not at or b'"cache_control":' in messages[at - 1].raw:
        return []
    if used >= MOST_MARKS:
        return [f"no cache mark before the block: the caller uses all {used}"]
    marked = dialect.with_mark(bodies[at - 1][-1])
    if marked is not None:
        bodies[at - 1][-1] = marked
    return []
