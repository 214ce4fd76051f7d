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

    def pre_turn_dispatch(self, history: Sequence[Any], *, tools: Any = None, emergency: bool = False) -> Dispatch: ...

    def post_turn_response(self, dispatch: Dispatch, reply: Any = None, *, outcome: str = "") -> Receipt: ...


def completion(hooks: Hooks, messages: Sequence[Any], options: dict[str, Any]) -> Any:
    """See `Harness.completion`."""
    dispatch = hooks.pre_turn_dispatch(messages, tools=options.get("tools"))
    try:
        reply = hooks.client.complete(dispatch.messages, **options)
    except BaseException as error:
        shorter = _after_overflow(hooks, dispatch, error, messages, options)
        if shorter is None:
            raise
        dispatch = shorter
        try:
            reply = hooks.client.complete(dispatch.messages, **options)
        except BaseException as second:
            _failed(hooks, dispatch, second)
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
        shorter = _after_overflow(hooks, dispatch, error, messages, options)
        if shorter is None:
            raise
        dispatch = shorter
        try:
            reply = await hooks.client.acomplete(dispatch.messages, **options)
        except BaseException as second:
            _failed(hooks, dispatch, second)
            raise
    if options.get("stream"):
        return AsyncTurnStream(reply, partial(_book, hooks, dispatch))
    hooks.post_turn_response(dispatch, reply)
    return reply


def is_overflow(error: BaseException) -> bool:
    """Whether a provider found the request longer than its window (litellm's class, or the providers' own words)."""
    words = str(error)
    return type(error).__name__ == "ContextWindowExceededError" or any(
        sign in words for sign in ("context_length_exceeded", "prompt is too long", "maximum context length")
    )


def _after_overflow(
    hooks: Hooks, dispatch: Dispatch, error: BaseException, messages: Sequence[Any], options: dict[str, Any]
) -> Dispatch | None:
    """The one emergency dispatch after an overflow: all that may leave is folded. None if it would be no shorter, or if the
    error was another one; then the call is booked as failed and the error is the caller's."""
    if not is_overflow(error):
        _failed(hooks, dispatch, error)
        return None
    hooks.post_turn_response(dispatch, outcome="overflow")
    shorter = hooks.pre_turn_dispatch(messages, tools=options.get("tools"), emergency=True)
    if 0 < shorter.draft.sent < dispatch.draft.sent:
        return shorter
    error.add_note(
        "prompt-mmu: nothing more may leave this prompt: what is left is pinned, open, or the newest message"
    )
    _failed(hooks, shorter, error)
    return None


def _failed(hooks: Hooks, dispatch: Dispatch, error: BaseException) -> None:
    hooks.post_turn_response(dispatch, outcome="partial" if is_cancelled(error) else "failed")


def _book(hooks: Hooks, dispatch: Dispatch, reply: Any, outcome: str) -> None:
    with suppress(DispatchError):  # the harness was closed before the stream was read to its end, and has booked it
        hooks.post_turn_response(dispatch, reply, outcome=outcome)
