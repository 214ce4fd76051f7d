"""Things that answer a list of messages: litellm, and a scripted one for tests and demonstrations."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol


class Client(Protocol):
    """Anything that answers a context, in the form of chat completions. With `stream=True` it gives chunks."""

    def complete(self, messages: list[dict[str, Any]], **options: Any) -> Any: ...

    async def acomplete(self, messages: list[dict[str, Any]], **options: Any) -> Any: ...


class LiteLLM:
    """Calls `litellm.completion` and `litellm.acompletion`. litellm is imported at the first call: it takes seconds."""

    def _module(self) -> Any:
        # Without this the import looks up prices on the network and leaves a retrying thread behind.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm  # noqa: PLC0415

        return litellm

    def complete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        """See `litellm.completion`."""
        return self._module().completion(messages=messages, **options)

    async def acomplete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        """See `litellm.acompletion`."""
        return await self._module().acompletion(messages=messages, **options)


class ScriptedClient:
    """Answers with the given replies, one after the other: texts, assistant messages, or exceptions to raise.

    `requests` keeps what was sent. Raises LookupError when the script is at its end.
    """

    def __init__(self, replies: Sequence[str | dict[str, Any] | BaseException]) -> None:
        self._replies = iter(replies)
        self.requests: list[list[dict[str, Any]]] = []

    def complete(self, messages: list[dict[str, Any]], *, stream: bool = False, **_: Any) -> Any:
        """The next reply as a chat completion, or its chunks."""
        self.requests.append(messages)
        try:
            reply = next(self._replies)
        except StopIteration:
            raise LookupError(f"the script has no reply for request {len(self.requests)}") from None
        if isinstance(reply, BaseException):
            raise reply
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        if stream:
            return _chunks(message)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}

    async def acomplete(self, messages: list[dict[str, Any]], *, stream: bool = False, **options: Any) -> Any:
        """The same, awaited."""
        reply = self.complete(messages, stream=stream, **options)
        return _later(reply) if stream else reply


def _chunks(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for word in (message.get("content") or "").split(" "):
        yield {"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]}
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": number, **call}]}, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def _later(chunks: Iterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for chunk in chunks:
        yield chunk
