"""A provider's stream, passed on as it is; its end is seen exactly once, in whatever way it comes."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from harness.reply import Reply, StreamReply

OnEnd = Callable[[Reply, str], None]
"""Called once with the reply as far as it came, and the outcome: `answered`, `called`, `partial` or `failed`."""


def is_cancelled(error: BaseException) -> bool:
    """Whether an awaited call ended because its task was cancelled."""
    from asyncio import CancelledError  # noqa: PLC0415 - synchronous callers need not pay for the event loop

    return isinstance(error, CancelledError)


class _Watch:
    """Fires once."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end: OnEnd | None = on_end
        self.gathered = StreamReply()

    def end(self, outcome: str) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self.gathered.reply(), "called" if outcome == "answered" and self.gathered.calls else outcome)


class TurnStream:
    """A synchronous stream. A class and no generator: a generator's `finally` may run late and in another task.

    Full read, `break`, `close`, the end of a `with` block, an exception and garbage collection all end the turn; the
    first of them counts. Unknown attributes are the provider stream's own.
    """

    def __init__(self, stream: Any, on_end: OnEnd) -> None:
        self._stream, self._watch = stream, _Watch(on_end)
        self._chunks = iter(stream)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self._watch.end("answered")
            raise
        except BaseException:
            self._watch.end("failed")
            raise
        self._watch.gathered.add(chunk)
        return chunk

    def close(self) -> None:
        """Leave the stream early."""
        self._watch.end("partial")
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        watch = self.__dict__.get("_watch")  # absent if the provider's object was no stream
        if watch is not None:
            watch.end("partial")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stream"], name)


class AsyncTurnStream:
    """An asynchronous stream; see `TurnStream`. A cancelled task counts as `partial`."""

    def __init__(self, stream: Any, on_end: OnEnd) -> None:
        self._stream, self._watch = stream, _Watch(on_end)
        self._chunks = aiter(stream)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._watch.end("answered")
            raise
        except BaseException as error:
            self._watch.end("partial" if is_cancelled(error) else "failed")
            raise
        self._watch.gathered.add(chunk)
        return chunk

    async def aclose(self) -> None:
        """Leave the stream early."""
        self._watch.end("partial")
        close = getattr(self._stream, "aclose", None) or getattr(self._stream, "close", None)
        if close is not None:
            done = close()
            if hasattr(done, "__await__"):
                await done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        watch = self.__dict__.get("_watch")
        if watch is not None:
            watch.end("partial")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stream"], name)
