"""Whether the calls and results of a request belong together: the last check before the wire (hazards A)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.history import Message


def problems(messages: Sequence[Message]) -> tuple[str, ...]:
    """What a provider would refuse: a result without its call, a call whose answer does not follow before the next message.

    An open call at the very end is in order: its results are still to come.
    """
    found: list[str] = []
    pending: list[str] = []
    caller = -1
    for position, message in enumerate(messages):
        if message.kind == "tool":
            if message.answers in pending:
                pending.remove(message.answers)
            else:
                found.append(f"message {position}: a result for call {message.answers!r}, which is not open")
            continue
        if pending and message.kind != "system":
            found.append(
                f"message {caller}: no answer to call {', '.join(map(repr, pending))} before message {position}"
            )
            pending = []
        if message.kind == "assistant":
            pending, caller = list(message.calls), position
    return tuple(found)
