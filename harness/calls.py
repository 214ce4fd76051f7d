"""The two hooks around a client's call: plain or streamed, synchronous or not, whole, broken, left early or cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from harness.clients import Client
from harness.dispatch import Dispatch
from harness.errors import DispatchError
from harness.receipt import Receipt
from harness.stream import AsyncTurnStream, TurnStream, is_cancelled


class Hooks(Protocol):
    """What a call asks of the harness."""

    client: Client

    def pre_turn_dispatch(self, history: Sequence[Any], *, tools: Any = None) -> Dispatch: ...

    def post_turn_response(self, dispatch: Dispatch, reply: Any = None, *, outcome: str = "") -> Receipt: ...


def completion(hooks: Hooks, messages: Sequence[Any], options: dict[str, Any]) -> Any:
    """See `Harness.completion`."""
    dispatch = hooks.pre_turn_dispatch(messages, tools=options.get("tools"))
    try:
        reply = hooks.client.complete(dispatch.messages, **options)
    except BaseException:
        hooks.post_turn_response(dispatch, outcome="failed")
        raise
    if options.get("stream"):
        return TurnStream(reply, partial(_book, hooks, dispatch))
    hooks.post_turn_response(dispatch, reply)
    return reply


async def acompletion(hooks: Hooks, messages: Sequence[Any], options: dict[str, Any]) -> Any:
    """See `Harness.acompletion`. The hooks run in the event loop: they take milliseconds, and cannot be cancelled halfway."""
    dispatch = hooks.pre_turn_dispatch(messages, tools=options.get("tools"))
    try:
        reply = await hooks.client.acomplete(dispatch.messages, **options)
    except BaseException as error:
        hooks.post_turn_response(dispatch, outcome="partial" if is_cancelled(error) else "failed")
        raise
    if options.get("stream"):
        return AsyncTurnStream(reply, partial(_book, hooks, dispatch))
    hooks.post_turn_response(dispatch, reply)
    return reply


def _book(hooks: Hooks, dispatch: Dispatch, reply: Any, outcome: str) -> None:
    with suppress(DispatchError):  # the harness was closed before the stream was read to its end, and has booked it
        hooks.post_turn_response(dispatch, reply, outcome=outcome)
