"""The hooks around a client's call: plain and streamed, in threads of control that end in every way there is."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from harness import Harness, ScriptedClient, Usage, fixed_clock
from harness.stream import TurnStream
from store import MemoryStore

HELLO = [{"role": "user", "content": "Hello."}]
CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


def remember(*replies: Any, **options: Any) -> Harness:
    """A harness over a scripted model."""
    return Harness.open(MemoryStore(), client=ScriptedClient(replies), clock=fixed_clock(), **options)


def outcomes(memory: Harness) -> list[str]:
    """How the booked calls ended."""
    return [receipt.outcome for receipt in memory.receipts]


def folded(memory: Harness) -> list[dict[str, Any]]:
    """A history in which step 2 of the harness, about Kestrel, has left the prompt, and a question for it."""
    history: list[dict[str, Any]] = []
    for number, text in enumerate(("Hello.", "Kestrel listens on port 8931.", *(f"zq{n} " * 60 for n in range(6)))):
        history.append({"role": "user", "content": text})
        dispatch = memory.pre_turn_dispatch(history)
        memory.post_turn_response(dispatch, f"ok {number}")
        history.append({"role": "assistant", "content": f"ok {number}"})
    assert 2 in memory.folded
    return [*history, {"role": "user", "content": "Where does Kestrel listen?"}]


MARKS = {"high_water_tokens": 400, "low_water_tokens": 150}


# -- whole answers


def test_a_plain_call_gives_the_clients_answer_and_is_booked() -> None:
    memory = remember("hi")
    reply = memory.completion(model="m", messages=HELLO)
    assert reply["choices"][0]["message"]["content"] == "hi"
    assert outcomes(memory) == ["answered"]
    assert memory.client.requests == [HELLO]


def test_an_awaited_call_gives_the_same() -> None:
    memory = remember("hi")
    reply = asyncio.run(memory.acompletion(model="m", messages=HELLO))
    assert reply["choices"][0]["message"]["content"] == "hi"
    assert outcomes(memory) == ["answered"]


def test_an_answer_that_calls_a_tool_keeps_the_turn_open() -> None:
    memory = remember(CALLING, "done")
    memory.completion(messages=HELLO)
    memory.completion(messages=[*HELLO, CALLING, {"role": "tool", "tool_call_id": "c", "content": "42"}])
    assert [(r.turn, r.dispatch, r.outcome) for r in memory.receipts] == [(1, 1, "called"), (1, 2, "answered")]


@pytest.mark.parametrize(
    "error", [ValueError("no key"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("waiting", [False, True], ids=["sync", "async"])
def test_what_the_client_raises_flies_on_unchanged_and_the_turn_is_evicted(error: BaseException, waiting: bool) -> None:
    memory = remember(error, policy=MARKS)
    history = folded(memory)
    with pytest.raises(type(error)) as caught:
        if waiting:
            asyncio.run(memory.acompletion(messages=history))
        else:
            memory.completion(messages=history)
    assert caught.value is error
    assert memory.receipts[-1].outcome == "failed"
    assert memory.receipts[-1].evicted == (2,)


def test_the_options_of_a_call_reach_the_client_as_they_were_given() -> None:
    class Noting(ScriptedClient):
        def complete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
            noted.append(options)
            return super().complete(messages)

    noted: list[Any] = []
    tools = [{"type": "function", "function": {"name": "f"}}]
    with Harness.open(MemoryStore(), client=Noting(["hi"])) as memory:
        memory.completion(model="m", messages=HELLO, tools=tools, temperature=0, user="u")
    assert noted == [{"model": "m", "tools": tools, "temperature": 0, "user": "u"}]
    assert noted[0]["tools"] is tools


# -- usage

USAGES = [
    (None, None),
    ({}, None),
    ({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}, Usage(100, 0, 0, 7)),
    (
        {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}},
        Usage(36, 0, 64, 7),
    ),
    (
        {
            "prompt_tokens": 2516,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 0},
            "cache_creation_input_tokens": 2508,
            "cache_read_input_tokens": 0,
        },
        Usage(8, 2508, 0, 3),
    ),
    ({"prompt_tokens": 2516, "completion_tokens": 3, "cache_read_input_tokens": 2508}, Usage(8, 0, 2508, 3)),
    ({"prompt_tokens": 10, "prompt_tokens_details": None, "completion_tokens": None}, Usage(10, 0, 0, 0)),
    ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(0, 0, 99, 0)),
    ({"prompt_tokens": 2**70, "completion_tokens": -3, "total_tokens": "many"}, Usage(0, 0, 0, 0)),
]


@pytest.mark.parametrize(("usage", "expected"), USAGES)
def test_usage_is_booked_as_the_provider_reports_it(usage: Any, expected: Usage | None) -> None:
    memory = remember()
    dispatch = memory.pre_turn_dispatch(HELLO)
    receipt = memory.post_turn_response(dispatch, {"choices": [], "usage": usage})
    assert receipt.usage == expected
    assert memory.receipts == (receipt,)
    assert expected is None or expected.input == expected.new_input + expected.cache_write + expected.cache_read


# -- the end of a stream, seen exactly once


class Upstream:
    """A provider's stream: some chunks, and then an error if there is one. Notes whether it was closed."""

    def __init__(self, words: int = 3, error: BaseException | None = None, last: Any = None) -> None:
        self._chunks = self._make(words, error, last)
        self.closed = 0
        self.response = "the provider's own"

    def _make(self, words: int, error: BaseException | None, last: Any) -> Iterator[Any]:
        for number in range(words):
            yield {"choices": [{"index": 0, "delta": {"content": f"w{number} "}, "finish_reason": None}]}
        if error:
            raise error
        yield {"choices": [{"index": 0, "delta": last or {}, "finish_reason": "stop"}]}
        yield {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": words}}

    def __iter__(self) -> Iterator[Any]:
        return self._chunks

    def close(self) -> None:
        self.closed += 1


class AsyncUpstream(Upstream):
    """The same, awaited; with `hangs` it waits for ever behind its first chunk, and says so."""

    def __init__(self, *args: Any, hangs: asyncio.Event | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._hangs = hangs

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk
            if self._hangs:
                self._hangs.set()
                await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed += 1


class Streaming:
    """A client that answers with one upstream."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream

    def complete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        return self.upstream

    async def acomplete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        return self.upstream


def stream_of(upstream: Upstream) -> tuple[Harness, Any]:
    """A harness and a stream that was asked for through it, for a turn that brings step 2 back."""
    memory = remember(policy=MARKS)
    history = folded(memory)
    memory.client = Streaming(upstream)
    if isinstance(upstream, AsyncUpstream):
        return memory, memory.acompletion(messages=history, stream=True)
    return memory, memory.completion(messages=history, stream=True)


def read_whole(stream: Any) -> None:
    assert len(list(stream)) == 5
    assert list(stream) == []
    stream.close()


def read_whole_in_a_with_block(stream: Any) -> None:
    with stream as entered:
        assert entered is stream
        assert len(list(entered)) == 5


def leave_and_drop(stream: Any) -> None:
    for _ in stream:
        break


def leave_and_close(stream: Any) -> None:
    next(stream)
    stream.close()
    stream.close()


def leave_a_with_block(stream: Any) -> None:
    with pytest.raises(LookupError), stream:
        next(stream)
        raise LookupError


def never_read(stream: Any) -> None:
    pass


SYNC_ENDS = [
    (read_whole, "answered", Usage(9, 0, 0, 3)),
    (read_whole_in_a_with_block, "answered", Usage(9, 0, 0, 3)),
    (leave_and_drop, "partial", None),
    (leave_and_close, "partial", None),
    (leave_a_with_block, "partial", None),
    (never_read, "partial", None),
]


@pytest.mark.parametrize(("end", "outcome", "usage"), SYNC_ENDS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_streams_end_is_booked_once(end: Callable[[Any], None], outcome: str, usage: Usage | None) -> None:
    memory, stream = stream_of(Upstream())
    assert [r.outcome for r in memory.receipts].count("answered") == 8
    end(stream)
    del stream
    gc.collect()
    assert len(memory.receipts) == 9
    last = memory.receipts[-1]
    assert (last.outcome, last.usage, last.evicted) == (outcome, usage, (2,))


def read_to_its_break(stream: Any) -> None:
    with pytest.raises(OSError, match="upstream"):
        list(stream)


@pytest.mark.parametrize(
    ("end", "outcome"), [(read_to_its_break, "failed"), (read_whole, "answered"), (leave_and_close, "partial")]
)
def test_a_streams_end_is_told_once_whatever_is_done_with_it_afterwards(
    end: Callable[[Any], None], outcome: str
) -> None:
    told: list[str] = []
    stream = TurnStream(
        Upstream(error=OSError("upstream") if outcome == "failed" else None), lambda _, how: told.append(how)
    )
    end(stream)
    stream.close()
    del stream
    gc.collect()
    assert told == [outcome]


def test_a_stream_that_breaks_upstream_is_booked_as_failed_and_its_exception_flies_on() -> None:
    error = ConnectionResetError("upstream")
    memory, stream = stream_of(Upstream(error=error))
    seen = []
    with pytest.raises(ConnectionResetError) as caught, stream:
        seen.extend(stream)
    assert caught.value is error
    assert next(stream, None) is None
    del stream
    assert len(seen) == 3
    assert len(memory.receipts) == 9
    assert (memory.receipts[-1].outcome, memory.receipts[-1].evicted) == ("failed", (2,))


def test_a_stream_passes_every_chunk_on_and_what_is_the_providers_own() -> None:
    upstream = Upstream()
    _, stream = stream_of(upstream)
    assert stream.response == "the provider's own"
    with pytest.raises(AttributeError):
        _ = stream.nothing_of_that_name
    assert [chunk["choices"][0]["delta"].get("content") for chunk in list(stream)[:4]] == ["w0 ", "w1 ", "w2 ", None]
    stream.close()
    assert upstream.closed == 1


def test_a_streamed_tool_call_keeps_the_turn_open() -> None:
    memory, stream = stream_of(Upstream(last={"tool_calls": [{"index": 0, "id": "c"}]}))
    list(stream)
    assert (memory.receipts[-1].outcome, memory.receipts[-1].evicted) == ("called", ())


def test_a_stream_that_outlives_its_harness_can_still_be_read() -> None:
    memory, stream = stream_of(Upstream())
    memory.close()
    assert len(list(stream)) == 5
    assert outcomes(memory)[-1] == "unanswered"


async def aread_whole(stream: Any) -> None:
    assert [chunk async for chunk in stream][-1]["usage"]
    assert [chunk async for chunk in stream] == []


async def aread_whole_in_a_with_block(stream: Any) -> None:
    async with stream as entered:
        assert entered is stream
        assert len([chunk async for chunk in entered]) == 5


async def aleave_and_drop(stream: Any) -> None:
    async for _ in stream:
        break


async def aleave_and_close(stream: Any) -> None:
    await anext(stream)
    await stream.aclose()
    await stream.aclose()


async def aleave_a_with_block(stream: Any) -> None:
    with pytest.raises(LookupError):
        async with stream:
            await anext(stream)
            raise LookupError


ASYNC_ENDS = [
    (aread_whole, "answered"),
    (aread_whole_in_a_with_block, "answered"),
    (aleave_and_drop, "partial"),
    (aleave_and_close, "partial"),
    (aleave_a_with_block, "partial"),
]


@pytest.mark.parametrize(("end", "outcome"), ASYNC_ENDS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_awaited_streams_end_is_booked_once(end: Callable[[Any], Any], outcome: str) -> None:
    async def main() -> Harness:
        memory, waiting = stream_of(AsyncUpstream())
        await end(await waiting)
        gc.collect()
        return memory

    memory = asyncio.run(main())
    assert len(memory.receipts) == 9
    assert (memory.receipts[-1].outcome, memory.receipts[-1].evicted) == (outcome, (2,))


def test_an_awaited_stream_that_breaks_is_booked_as_failed() -> None:
    async def main() -> Harness:
        memory, waiting = stream_of(AsyncUpstream(error=ConnectionResetError("upstream")))
        stream = await waiting
        with pytest.raises(ConnectionResetError, match="upstream"):
            async for _ in stream:
                pass
        await stream.aclose()
        return memory

    assert outcomes(asyncio.run(main()))[8:] == ["failed"]


def test_a_cancelled_task_leaves_a_partial_turn_and_is_cancelled_all_the_same() -> None:
    async def main() -> Harness:
        hangs = asyncio.Event()
        memory, waiting = stream_of(AsyncUpstream(hangs=hangs))

        async def read() -> None:
            async for _ in await waiting:
                pass

        task = asyncio.create_task(read())
        await hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return memory

    memory = asyncio.run(main())
    assert outcomes(memory)[8:] == ["partial"]
    assert memory.receipts[-1].evicted == (2,)


def test_a_call_that_is_cancelled_before_its_answer_is_partial() -> None:
    async def main() -> Harness:
        asked = asyncio.Event()

        class Hanging(ScriptedClient):
            async def acomplete(self, messages: list[dict[str, Any]], **options: Any) -> Any:
                asked.set()
                await asyncio.Event().wait()

        memory = Harness.open(MemoryStore(), client=Hanging([]))
        task = asyncio.create_task(memory.acompletion(messages=HELLO))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return memory

    assert outcomes(asyncio.run(main())) == ["partial"]


@pytest.mark.parametrize("reply", ["hi there", CALLING])
def test_the_scripted_client_streams_what_it_would_have_answered(reply: Any) -> None:
    memory = remember(reply, reply)

    async def read() -> list[Any]:
        return [chunk async for chunk in await memory.acompletion(messages=HELLO, stream=True)]

    assert list(memory.completion(messages=HELLO, stream=True)) == asyncio.run(read())
    assert outcomes(memory) == ["called" if reply is CALLING else "answered"] * 2


def test_a_script_at_its_end_says_so() -> None:
    memory = remember("only one")
    memory.completion(messages=HELLO)
    with pytest.raises(LookupError, match="no reply for request 2"):
        memory.completion(messages=HELLO)
    assert outcomes(memory) == ["answered", "failed"]


# -- litellm, which takes seconds to import, and warns about itself on the way

quiet = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def litellm() -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    return pytest.importorskip("litellm")


@quiet
def test_litellm_answers_plain_and_streamed(litellm: Any) -> None:
    memory = Harness.open(MemoryStore(), clock=fixed_clock())
    before = json.dumps(HELLO)
    reply = memory.completion(model="gpt-4o", messages=HELLO, mock_response="hi")
    assert reply.choices[0].message.content == "hi"
    stream = memory.completion(
        model="gpt-4o",
        messages=[*HELLO, reply.choices[0].message, {"role": "user", "content": "And?"}],
        mock_response="streamed in words",
        stream=True,
        stream_options={"include_usage": True},
    )
    words = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(words) == "streamed in words"
    assert outcomes(memory) == ["answered", "answered"]
    assert all(r.usage and r.usage.input > 0 and r.usage.output > 0 for r in memory.receipts)
    assert [memory.store.get(i).rendering for i in (0, 1, 2)] == ["user: Hello.", "assistant: hi", "user: And?"]
    assert json.dumps(HELLO) == before


@quiet
def test_litellm_answers_when_awaited(litellm: Any) -> None:
    memory = Harness.open(MemoryStore(), clock=fixed_clock())

    async def main() -> str:
        reply = await memory.acompletion(model="gpt-4o", messages=HELLO, mock_response="hi")
        async with await memory.acompletion(model="gpt-4o", messages=HELLO, mock_response="a b", stream=True) as stream:
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        left = await memory.acompletion(model="gpt-4o", messages=HELLO, mock_response="a b c", stream=True)
        await anext(left)
        await left.aclose()
        return reply.choices[0].message.content + "".join(parts)

    assert asyncio.run(main()) == "hia b"
    assert outcomes(memory) == ["answered", "answered", "partial"]


@quiet
def test_an_error_of_litellm_is_litellms_and_a_tool_call_of_it_is_one(litellm: Any) -> None:
    memory = Harness.open(MemoryStore(), clock=fixed_clock())
    with pytest.raises(litellm.RateLimitError):
        memory.completion(model="gpt-4o", messages=HELLO, mock_response="litellm.RateLimitError")
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    memory.completion(model="gpt-4o", messages=HELLO, mock_response="", mock_tool_calls=calls)
    assert outcomes(memory) == ["failed", "called"]
