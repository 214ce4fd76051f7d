"""Histories that nobody should send: the call goes on all the same, nothing is lost, nothing half written."""

from __future__ import annotations

import copy
import enum
import json
import math
import re
from collections import UserDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from harness import DispatchError, HarnessError, HistoryError, PairingError
from mmu.tokens import EstimateMeter
from store import FileStore

HELLO = {"role": "user", "content": "Hello."}


def user(content: Any, **more: Any) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": content, **more}


def calling(calls: Any, **more: Any) -> dict[str, Any]:
    """An assistant message with calls."""
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def call(arguments: Any, name: Any = "f", call_id: Any = "c") -> dict[str, Any]:
    """A tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(content: Any = "42", call_id: Any = "c") -> dict[str, Any]:
    """A result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def plan_and_book(memory: Any, history: Any) -> tuple[Any, Any]:
    """One call: what is sent, and the receipt."""
    dispatch = memory.pre_turn_dispatch(history)
    return dispatch.messages, memory.post_turn_response(dispatch, "ok")


@pytest.mark.parametrize(
    "history", [None, "Hello.", b"Hello.", HELLO, 7, {1, 2}, iter([HELLO])], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("on_fault", ["bypass", "raise"])
def test_something_that_is_no_list_is_refused_at_once(make_loop: Any, history: Any, on_fault: str) -> None:
    memory = make_loop(on_fault=on_fault).memory
    with pytest.raises(
        HistoryError, match=f"history: a list of messages was expected, this is {type(history).__name__}"
    ):
        memory.pre_turn_dispatch(history)
    assert memory.receipts == ()
    assert len(memory.store.entries) == 0


# Each of these works: what is sent equals what came.
FINE: dict[str, list[Any]] = {
    "empty": [],
    "only system": [{"role": "system", "content": "You help."}],
    "only an assistant message": [{"role": "assistant", "content": "I begin."}],
    "no content": [{"role": "user"}],
    "content none": [user(None), {"role": "assistant", "content": None}],
    "content empty": [user(""), {"role": "assistant", "content": ""}, user([])],
    "parts of unknown type": [user([{"type": "hologram", "data": [1, 2]}, {"text": "no type"}, {"type": "text"}])],
    "parts that are texts": [user(["Hello", "again"])],
    "a picture without url": [user([{"type": "image_url"}, {"type": "image_url", "image_url": {"url": None}}])],
    "broken base64": [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}])],
    "audio and file": [
        user([{"type": "input_audio", "input_audio": {"data": "é"}}, {"type": "file", "file": {"file_id": "f"}}])
    ],
    "unknown fields": [user("Hello.", cache_control={"type": "ephemeral"}, name="Ada", metadata={"a": [None, 1.5]})],
    "NUL and controls": [user("W\x00s\x00l\x00 \x1b[31m \x7f \u2028"), {"role": "assistant", "content": "\x00"}],
    "huge integers": [user("Hello.", seed=2**70, small=-(2**63), exact=12345678901234567890123)],
    "special tokens": [user("<|endoftext|><|im_start|>system")],
    "a deep value": [user("Hello.", extra=nested(200)), user("Hello.", extra=nested(400))],
    "deep arguments": [HELLO, calling([call('{"a": ' + "[" * 600 + "]" * 600 + "}")]), answer()],
    "deeper arguments": [HELLO, calling([call("[" * 5000 + "]" * 5000)]), answer()],
    "arguments that are no JSON": [
        HELLO,
        calling([call("{not json"), call("", call_id="d")]),
        answer(),
        answer(call_id="d"),
    ],
    "arguments that are an object": [HELLO, calling([call({"a": 1, "b": 2**70})]), answer()],
    "tool_calls none or empty": [HELLO, calling(None), user("And?"), calling([]), user("And?"), calling({})],
    "ids of other types": [HELLO, calling([call("{}", call_id=7)]), answer(call_id=7)],
    "a custom tool": [HELLO, calling([{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]), answer()],
    "the old function calls": [
        HELLO,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ],
    "a refusal": [HELLO, {"role": "assistant", "content": None, "refusal": "No."}],
}


@pytest.mark.parametrize("case", FINE)
def test_an_odd_history_goes_out_as_it_came_and_is_archived_whole(make_loop: Any, tmp_path: Path, case: str) -> None:
    memory = make_loop(FileStore(tmp_path, "s")).memory
    history, before = FINE[case], copy.deepcopy(FINE[case])
    for _ in range(2):
        sent, receipt = plan_and_book(memory, history)
        assert sent == history == before
        assert (receipt.mode, receipt.faults) == ("active", ())
    own = [message for message in history if message["role"] != "system"]
    memory.close()
    again = FileStore(tmp_path, "s")
    archived = [message for step in sorted(again.entries) for message in json.loads(again.get(step).payload)]
    assert archived == own
    assert again.validate().faults == ()


# Half characters are made whole on the way out, since strict parsers refuse them; the store keeps what came.
HALF: dict[str, list[Any]] = {
    "in texts": [user("half \ud83c emoji"), {"role": "assistant", "content": "\udfff"}, user("ok \ud800")],
    "in calls": [HELLO, calling([call('{"a": "\ud800"}', "f\udc00", "\ud801")]), answer("\ud802", "\ud801")],
}


@pytest.mark.parametrize("case", HALF)
def test_half_characters_are_made_whole_on_the_way_out_and_archived_as_they_came(make_loop: Any, case: str) -> None:
    memory = make_loop().memory
    sent, receipt = plan_and_book(memory, HALF[case])
    whole = re.sub(r"\\ud[89a-f][0-9a-f]{2}", r"\\ufffd", json.dumps(HALF[case]))
    assert sent == json.loads(whole)
    assert receipt.faults == ()
    archived = [m for step in sorted(memory.store.entries) for m in json.loads(memory.store.get(step).payload)]
    assert archived == HALF[case]


# Each of these goes out as it came too, past us; the receipt says what was wrong.
BAD: dict[str, tuple[list[Any], str]] = {
    "a list of numbers": ([1, 2], "message 0: a message is an object with a role, this is int"),
    "a list of texts": ([HELLO, "Hello."], "message 1: a message is an object with a role, this is str"),
    "none among them": ([HELLO, None], "message 1: a message is an object with a role, this is NoneType"),
    "a class": ([HELLO, BaseModel], "message 1: a message is an object with a role"),
    "no role": ([HELLO, {"content": "Hello."}], "message 1: role None is none of system, developer, user"),
    "an unknown role": ([{"role": "wizard", "content": "x"}], "message 0: role 'wizard' is none of"),
    "a role of another type": ([{"role": ["user"], "content": "x"}], "message 0: role ['user'] is none of"),
    "content a number": ([HELLO, user(7)], "message 1: content is int; a text, a list of parts or null"),
    "content an object": ([user({"text": "x"})], "message 0: content is dict; a text"),
    "content bytes": ([user(b"x")], "message 0: JSON cannot hold it"),
    "a part that is a number": ([user(["a", 7])], "message 0: content part 1 is int, an object was expected"),
    "no JSON in it": ([HELLO, user("x", tag=object())], "message 1: JSON cannot hold it"),
    "a set in it": ([user("x", tags={1})], "message 0: JSON cannot hold it"),
    "NaN": ([HELLO, user("x", score=math.nan)], "message 1: JSON cannot hold it"),
    "infinity deep inside": ([user("x", a=[{"b": (1.0, -math.inf)}])], "message 0: JSON cannot hold it"),
    "NaN beside a huge integer": ([user("x", score=math.nan, seed=2**70)], "message 0: JSON cannot hold it"),
    "nesting without end": ([user("x", extra=nested(100_000))], "message 0: JSON cannot hold it"),
    "an integer of 5,000 digits": ([user("x", seed=10**5000)], "message 0: JSON cannot hold it"),
    "tool_calls a text": ([HELLO, calling("f")], "message 1: tool_calls is str, a list was expected"),
    "a call that is a text": ([HELLO, calling(["f"])], "message 1: tool call 0 has no function with a name"),
    "a call without function": ([HELLO, calling([call("{}"), {"id": "d"}])], "message 1: tool call 1 has no function"),
    "a call without name": ([HELLO, calling([call("{}", None)])], "message 1: tool call 0 has no function with a name"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_history_goes_out_past_us_and_the_receipt_says_what_is_wrong(
    make_loop: Any, tmp_path: Path, case: str
) -> None:
    loop = make_loop(FileStore(tmp_path, "s"), on_fault="bypass")
    loop.ask("Before."), loop.ask("And again.")
    history, reason = BAD[case]
    sent, receipt = plan_and_book(loop.memory, history)
    assert len(sent) == len(history)
    assert case == "nesting without end" or sent == history
    assert receipt.mode == "bypass"
    assert reason in receipt.faults[0]
    assert receipt.faults[0].startswith("bypassed: HistoryError: message ")
    assert loop.memory.receipts[-1] == receipt
    assert loop.ask("After.", changed=True).mode == "active"
    loop.memory.close()
    again = FileStore(tmp_path, "s")
    assert again.validate().faults == ()
    assert again.get(0).rendering == "user: Before."


@pytest.mark.parametrize("case", BAD)
def test_with_on_fault_raise_the_error_names_the_message(make_loop: Any, case: str) -> None:
    history, reason = BAD[case]
    with pytest.raises(HarnessError) as caught:
        make_loop().memory.pre_turn_dispatch(history)
    assert isinstance(caught.value, HistoryError | PairingError)
    assert str(caught.value).startswith(reason)


class Message(BaseModel):
    """A message object as the SDKs have them."""

    role: str
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Role(str, enum.Enum):  # noqa: UP042 - as it is written in the field
    """A role as some frameworks write it."""

    USER = "user"


def test_message_objects_of_an_sdk_are_read_by_their_own_dump_and_not_changed(make_loop: Any) -> None:
    memory = make_loop().memory
    said = Message(role="assistant", tool_calls=[call('{"command": "ls"}', "bash")])
    history = [HELLO, said, answer("a.txt")]
    sent, receipt = plan_and_book(memory, history)
    assert sent == [HELLO, {"role": "assistant", "tool_calls": said.tool_calls}, answer("a.txt")]
    assert receipt.faults == ()
    assert history[1] is said
    assert memory.store.get(1).rendering == "$ ls\na.txt"


@pytest.mark.parametrize("wrap", [MappingProxyType, UserDict, lambda body: {**body, "role": Role.USER}])
def test_other_mappings_and_enumerated_roles_are_messages_too(make_loop: Any, wrap: Any) -> None:
    sent, receipt = plan_and_book(make_loop().memory, (wrap(HELLO),))
    assert sent == [HELLO]
    assert receipt.faults == ()


def test_an_object_that_fails_when_it_is_read_does_not_stop_the_call(make_loop: Any) -> None:
    class Broken:
        def model_dump(self, **_: Any) -> Any:
            raise OSError("gone")

    broken = Broken()
    sent, receipt = plan_and_book(make_loop(on_fault="bypass").memory, [HELLO, broken])
    assert len(sent) == 2
    assert "message 1: " in receipt.faults[0]
    assert "gone" in receipt.faults[0]


def test_a_message_of_twenty_megabytes_goes_through_whole(make_loop: Any, tmp_path: Path) -> None:
    store = FileStore(tmp_path, "s")
    memory = make_loop(store, meter=EstimateMeter()).memory  # the vocabulary takes five seconds for each count of it
    big = ("0123456789abcdef" * 64 + "\n") * (20 * 2**20 // 1025)
    work = [HELLO, calling([call('{"command": "cat big"}', "bash")]), answer(big)]
    sent, receipt = plan_and_book(memory, work)
    assert sent == work
    assert receipt.faults == ()
    history = [*work, {"role": "assistant", "content": "ok"}, user("What now?")]
    sent, receipt = plan_and_book(memory, history)
    assert 1 in receipt.folded
    assert len(json.dumps(sent)) < 2000
    assert json.loads(store.get(1).payload)[1]["content"] == big
    memory.close()


@pytest.mark.parametrize(
    "reply",
    [None, "", "text", b"bytes", 7, [], {}, {"choices": None}, {"choices": [None, 7]}, {"choices": "x"}, object()],
    ids=lambda value: type(value).__name__,
)
def test_a_reply_of_any_kind_is_an_answer_without_usage(make_loop: Any, reply: Any) -> None:
    memory = make_loop().memory
    receipt = memory.post_turn_response(memory.pre_turn_dispatch([HELLO]), reply)
    assert (receipt.outcome, receipt.usage) == ("answered", None)


def test_a_wrong_dispatch_is_a_clear_error(make_loop: Any) -> None:
    one, two = make_loop().memory, make_loop().memory
    with pytest.raises(DispatchError, match="not open here"):
        one.post_turn_response(two.pre_turn_dispatch([HELLO]), "hi")
