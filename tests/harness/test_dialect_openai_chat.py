"""OpenAI chat messages: how each is read, what recognises it, what it costs, where a block goes."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from harness.dialects.openai_chat import OpenAIChat
from harness.history import Message, compact
from harness.reader import Reader
from mmu.envelope import place, seal
from mmu.step import Call, Media, Opaque, Result, Text

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


@pytest.fixture
def dialect(meter: Any) -> OpenAIChat:
    """The dialect of a session."""
    return OpenAIChat("s", meter)


def read(dialect: OpenAIChat, body: dict[str, Any]) -> Message:
    """One message."""
    return dialect.read_message(body, compact(body))


def image(url: str, detail: str | None = None) -> dict[str, Any]:
    """A user message with a picture."""
    picture = {"url": url} if detail is None else {"url": url, "detail": detail}
    return {"role": "user", "content": [{"type": "image_url", "image_url": picture}]}


CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
MEDIA = Media("image", "image/png", len(PNG), hashlib.sha256(PNG).hexdigest(), 255)
REMOTE = Media("image", "image/unknown", 0, hashlib.sha256(b"https://x/a.png").hexdigest(), 765)

READINGS: list[tuple[dict[str, Any], str, tuple[Any, ...]]] = [
    ({"role": "system", "content": "a"}, "system", (Text("system", "a"),)),
    ({"role": "developer", "content": "a"}, "system", (Text("developer", "a"),)),
    ({"role": "user", "content": "a"}, "user", (Text("user", "a"),)),
    ({"role": "user", "content": ["a", {"type": "text", "text": "b"}]}, "user", (Text("user", "a"), Text("user", "b"))),
    ({"role": "user", "content": [{"type": "odd", "cache_control": 1}]}, "user", (Opaque("odd", '{"type":"odd"}'),)),
    ({"role": "assistant", "content": None}, "assistant", ()),
    ({"role": "assistant", "refusal": "No."}, "assistant", (Text("assistant", "No."),)),
    (
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        "assistant",
        (Text("assistant", "I look."), Call("bash", '{"command": "ls"}', "c1")),
    ),
    ({"role": "tool", "tool_call_id": "c1", "content": "a"}, "tool", (Result("a", "c1"),)),
    ({"role": "tool", "content": ["a", "b"]}, "tool", (Result("a\nb", ""),)),
    ({"role": "tool", "tool_call_id": "c", "content": image(URL)["content"]}, "tool", (Result("", "c"), MEDIA)),
    ({"role": "function", "name": "f", "content": "a"}, "tool", (Result("a", "function:f"),)),
    (image(URL), "user", (MEDIA,)),
    (image(URL, "low"), "user", (Media("image", "image/png", len(PNG), MEDIA.sha256, 85),)),
    (image("https://x/a.png"), "user", (REMOTE,)),
]


@pytest.mark.parametrize(("body", "kind", "parts"), READINGS)
def test_a_message_is_read_into_neutral_parts(dialect: OpenAIChat, body: Any, kind: str, parts: Any) -> None:
    message = read(dialect, body)
    assert (message.kind, message.parts) == (kind, parts)
    assert message.fresh() == body


ONE = {"role": "user", "content": "Hello."}
SAME = [
    (ONE, {"role": "user", "content": [{"type": "text", "text": "Hello."}]}),
    (ONE, {"role": "user", "content": [{"type": "text", "text": "Hello.", "cache_control": {"type": "ephemeral"}}]}),
    (ONE, {"content": "Hello.", "role": "user", "name": "Ada", "id": "msg_1"}),
    ({"role": "system", "content": "a"}, {"role": "developer", "content": "a"}),
    (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{**CALL, "id": "other"}], "reasoning_content": "hm"},
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**CALL, "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
        },
    ),
    ({"role": "tool", "tool_call_id": "a", "content": "x"}, {"role": "tool", "tool_call_id": "b", "content": ["x"]}),
]
OTHER = [
    (ONE, {"role": "user", "content": "Hello. "}),
    (ONE, {"role": "assistant", "content": "Hello."}),
    (ONE, {"role": "user", "content": ["Hel", "lo."]}),
    (image(URL), image("https://x/a.png")),
    ({"role": "tool", "content": "x"}, {"role": "tool", "content": "y"}),
    (
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "bash", "arguments": '{"command": "la"}'}}]},
    ),
    ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [CALL, CALL]}),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_what_clients_change_on_the_way_does_not_make_another_step(dialect: OpenAIChat, one: Any, two: Any) -> None:
    assert read(dialect, one).key == read(dialect, two).key


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_another_text_call_or_picture_is_another_step(dialect: OpenAIChat, one: Any, two: Any) -> None:
    assert read(dialect, one).key != read(dialect, two).key


def test_everything_that_is_sent_counts(dialect: OpenAIChat, meter: Any) -> None:
    plain = dialect.tokens({"role": "user", "content": "Hello."})
    assert plain == 4 + meter.count("Hello.")
    assert dialect.tokens({"role": "user", "content": ["Hello."]}) == plain
    assert dialect.tokens(image(URL)) == 4 + 255
    assert dialect.tokens({"role": "tool", "content": image(URL)["content"]}) == 4 + 255
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert dialect.tokens(calling) == 4 + 4 + meter.count("bash") + meter.count('{"command": "ls"}')
    assert dialect.tokens({**calling, "reasoning_content": "hm hm"}) == dialect.tokens(calling) + meter.count("hm hm")
    assert dialect.tokens({"role": "user", "content": [{"type": "odd", "data": "x y z"}]}) > 4 + 5


def test_a_block_goes_before_a_text_and_in_front_of_a_list(dialect: OpenAIChat) -> None:
    assert dialect.with_block({"role": "user", "content": "mine"}, "B") == {"role": "user", "content": "B\n\nmine"}
    assert dialect.with_block({"role": "user", "content": None}, "B") == {"role": "user", "content": "B\n\n"}
    with_list = dialect.with_block({"role": "user", "content": ["mine"]}, "B")
    assert with_list["content"] == [{"type": "text", "text": "B"}, "mine"]


OURS = seal("archived-steps", "body", "s")
HOT = seal("folded-steps", "lines", "s")
STRIPPED: list[tuple[Any, Any, int, str]] = [
    (place(OURS, "mine"), "mine", 1, "user"),
    (place(HOT, place(OURS, "mine")), "mine", 2, "user"),
    ([OURS, "mine"], [OURS, "mine"], 0, "user"),
    ([{"type": "text", "text": OURS}, {"type": "text", "text": "mine"}], [{"type": "text", "text": "mine"}], 1, "user"),
    ([{"type": "text", "text": place(OURS, "mine")}], [{"type": "text", "text": "mine"}], 1, "user"),
    (HOT, "", 1, "ours"),
    ([{"type": "text", "text": HOT}], [], 1, "ours"),
    ("mine\n\n" + OURS, "mine\n\n" + OURS, 0, "user"),
]


@pytest.mark.parametrize(("content", "rest", "count", "kind"), STRIPPED)
def test_what_we_put_in_is_taken_off_when_it_comes_back(
    dialect: OpenAIChat, content: Any, rest: Any, count: int, kind: str
) -> None:
    message = read(dialect, {"role": "user", "content": content})
    assert (message.fresh()["content"], message.stripped, message.kind) == (rest, count, kind)


def test_only_a_users_message_can_hold_a_block_of_ours(dialect: OpenAIChat) -> None:
    for role in ("assistant", "tool", "system"):
        assert read(dialect, {"role": role, "content": place(OURS, "x")}).stripped == 0


def test_a_history_read_bit_by_bit_has_the_steps_of_one_read_whole(meter: Any) -> None:
    ids = ("x", "y", "x")
    history: list[dict[str, Any]] = []
    for number in range(12):
        history.append({"role": "user", "content": f"{number % 3}"})
        calls = [{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in ids[: number % 4]]
        history.append({"role": "assistant", "content": "", "tool_calls": calls})
        history += [{"role": "tool", "tool_call_id": call["id"], "content": "42"} for call in reversed(calls)]
    growing = Reader(OpenAIChat("s", meter))
    for end in [*range(len(history) + 1), 7, 20, 3, len(history)]:
        part = growing.read(history[:end])
        whole = Reader(OpenAIChat("s", meter)).read(history[:end])
        assert [(s.kind, s.positions, s.open_calls, s.payload) for s in part.steps] == [
            (s.kind, s.positions, s.open_calls, s.payload) for s in whole.steps
        ]
    changed = [*history[:10], {"role": "user", "content": "changed"}, *history[11:]]
    assert growing.read(changed).steps == Reader(OpenAIChat("s", meter)).read(changed).steps


def test_a_result_belongs_to_the_nearest_call_of_its_id_that_is_still_open(meter: Any) -> None:
    """Hazards A17 and B1: an interrupted call stays open, and a later one has the same id."""
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    steps = Reader(OpenAIChat("s", meter)).read([ONE, calling, ONE, calling, result]).steps
    assert [(step.positions, step.open_calls) for step in steps] == [
        ((0,), ()),
        ((1,), ("c1",)),
        ((2,), ()),
        ((3, 4), ()),
    ]


def test_a_reader_that_forgets_reads_again(meter: Any) -> None:
    history = [{"role": "user", "content": f"text {number} " * 20} for number in range(20)]
    reader = Reader(OpenAIChat("s", meter), limit=1000)
    for end in range(1, 21):
        assert len(reader.read(history[:end]).steps) == end


@pytest.mark.parametrize("value", [{"a": 1}, {"b": [1, None, "ü"], "a": 1.5}, "half \ud83c", 2**70, {"x": 2**64}, []])
def test_compact_json_keeps_key_order_and_reads_back(value: Any) -> None:
    raw = compact(value)
    assert json.loads(raw) == value
    assert raw.decode("utf-8") == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    ).decode("utf-8", "surrogatepass").replace("\ud83c", "\\ud83c")
