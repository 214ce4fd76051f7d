"""Histories that grow, with results that come late, twice or for nobody: read step by step or at once they are the same, on
one branch, and what a provider pairs or signs is never taken apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Harness, ScriptedClient, fixed_clock
from harness.branches import BRANCHES_FILE
from harness.dialects import DialectName, make
from harness.errors import BranchError
from harness.reader import Reader
from mmu.tokens import open_meter
from store import MemoryStore, session_folder

Body = dict[str, Any]
METER = open_meter()
CALLED = {"choices": [{"message": {"role": "assistant", "tool_calls": [{}]}}]}


def opened(store: Any = None, session: str = "s", **options: Any) -> Harness:
    given = {"client": ScriptedClient([]), "clock": fixed_clock(), "meter": METER, "on_fault": "raise", **options}
    return Harness.open(MemoryStore(session) if store is None else store, session=session, **given)


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def answer(text: str | None) -> Body:
    return {"role": "assistant", "content": text}


def call(*ids: str, command: str = "ls") -> Body:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {**answer(None), "tool_calls": [{"id": one, "type": "function", "function": function} for one in ids]}


def result(call_id: str, text: str) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


# -- D2: the short way and the long way give the same

Item = tuple[str, str, list[str]]


def chat(kind: str, text: str, ids: list[str]) -> Body:
    if kind == "call":
        return call(*ids, command=text)
    return result(ids[0], text) if kind == "result" else {"role": kind, "content": text or None}


def responses(kind: str, text: str, ids: list[str]) -> Body:
    if kind == "call" and text:
        type_ = "shell_call" if len(ids) > 1 else "function_call"
        return {"type": type_, "call_id": ids[0], "name": "f", "arguments": "{}"}
    if kind == "call":
        return {"type": "web_search_call", "id": ids[0], "status": "completed"}
    if kind == "result":
        return {"type": "function_call_output", "call_id": ids[0], "output": text}
    return {"type": "message", "role": kind, "content": text or []}


def anthropic(kind: str, text: str, ids: list[str]) -> Body:
    words = [{"type": "text", "text": text}] if text else []
    if kind == "call":
        uses = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]
        return {"role": "assistant", "content": [*words, *uses]}
    if kind == "result":
        results = [{"type": "tool_result", "tool_use_id": one, "content": "42"} for one in ids]
        return {"role": "user", "content": [*results, *words]}
    return {"role": kind, "content": text or []}


WRITERS = {"openai-chat": chat, "openai-responses": responses, "anthropic": anthropic}
KINDS = st.sampled_from(["user", "user", "system", "assistant", "call", "call", "result", "result", "result"])
IDS = st.lists(st.sampled_from(["x", "y", ""]), min_size=1, max_size=3)
ITEMS = st.tuples(KINDS, st.sampled_from(["", "hello", "so"]), IDS)
GROWTHS = st.lists(st.lists(ITEMS, min_size=1, max_size=4), min_size=2, max_size=6)


@pytest.mark.parametrize("dialect", WRITERS)
@given(GROWTHS, st.data())
def test_a_reader_that_saw_a_history_grow_and_change_gives_what_a_fresh_one_gives(
    dialect: DialectName, growths: list[list[Item]], data: st.DataObject
) -> None:
    """Also where the client takes something back, replaces it, or trims its front between two calls."""
    history: list[Body] = []
    known = Reader(make(dialect, "s", METER))
    for growth in growths:
        history += [WRITERS[dialect](*item) for item in growth]
        at = data.draw(st.integers(0, len(history) - 1))
        changed = data.draw(
            st.sampled_from([history] * 5 + [history[:at], history[at:], history[:at] + history[at + 1 :]])
        )
        history = list(changed)
        found, fresh = known.read(history), Reader(make(dialect, "s", METER)).read(history)
        assert found.messages == fresh.messages
        assert found.steps == fresh.steps
        assert found.opening == fresh.opening


@pytest.mark.parametrize("dialect", WRITERS)
@given(GROWTHS)
@settings(max_examples=40)
def test_a_session_sends_what_a_session_that_sees_it_all_at_once_would_send(
    dialect: DialectName, growths: list[list[Item]]
) -> None:
    policy = {"max_rehydration_tokens_per_turn": 0}  # what is brought back depends on what was in the store before
    memory, history = opened(policy=policy), [WRITERS[dialect]("user", "begin", [""])]
    for growth in growths:
        history += [WRITERS[dialect](*item) for item in growth]
        dispatch = memory.pre_turn_dispatch(history, dialect=dialect)
        memory.post_turn_response(dispatch, CALLED)
    assert dispatch.messages == opened(policy=policy).pre_turn_dispatch(history, dialect=dialect).messages
    assert memory.store.validate().faults == ()


START = [user("Build it."), call("x", command="cat kestrel.log")]
GROWING: dict[str, list[list[Body]]] = {
    "a call that is polled": [[*START, result("x", "1 %")], *([result("x", f"{n} %")] for n in (2, 3, 4, 5))],
    "a result after the next prompt": [[*START, user("Well?")], [result("x", "up")], [answer("It is up."), user("Good.")]],
    "results in another order": [[START[0], call("x", "y"), result("y", "2")], [result("x", "1")]],
    "one id again and again": [[*START, result("x", "1")], [START[1]], [result("x", "2")], [START[1], result("x", "3")]],
    "a result for nobody": [[*START, result("x", "1"), result("?", "2")], [answer("ok"), user("And?")], [answer("ok")]],
    "empty messages": [[user(""), answer("")], [user(""), answer("")], [user("")], [answer(""), user("")]],
}  # fmt: skip


@pytest.mark.parametrize("about", GROWING)
def test_a_history_that_only_grows_stays_on_one_branch(about: str) -> None:
    memory, history = opened(), list[Body]()
    for more in GROWING[about]:
        history += more
        dispatch = memory.pre_turn_dispatch(history)
        assert memory.post_turn_response(dispatch, CALLED).branch == "s"
    assert dispatch.messages == opened().pre_turn_dispatch(history).messages


def test_a_prompt_put_in_other_words_several_times_opens_no_branch() -> None:
    memory, begun = opened(), [user("Hi."), answer("ok")]
    for words in ("One?", "Two?", "Three?", "Four?"):
        dispatch = memory.pre_turn_dispatch([*begun, user(words)])
        assert memory.post_turn_response(dispatch, "ok").branch == "s"


def test_an_interim_answer_is_not_brought_back_as_the_latest_beside_the_final_one() -> None:
    memory = opened()
    history = [*START, result("x", "kestrel.log: starting, port 7001"), call("y", command="sleep 5"), result("y", "ok")]
    memory.post_turn_response(memory.pre_turn_dispatch(history), CALLED)
    history += [result("x", "kestrel.log: up, port 7002")]
    sent = json.dumps(memory.pre_turn_dispatch(history).messages)
    assert "7002" in sent
    assert "7001" not in sent or "| latest" not in sent


# -- D3 D4 D6: what belongs together


def item(role: str, text: str) -> Body:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def shell(n: int) -> list[Body]:
    output = [{"stdout": "long " * 60, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    made = {"type": "shell_call", "call_id": f"c{n}", "action": {"commands": [f"cat f{n}"]}, "status": "completed"}
    return [made, {"type": "shell_call_output", "call_id": f"c{n}", "output": output}]


def web(n: int) -> list[Body]:
    search = {
        "type": "web_search_call",
        "id": f"w{n}",
        "status": "completed",
        "action": {"type": "search", "query": f"q{n}"},
    }
    return [search, item("assistant", f"Found {n}. " + "text " * 120)]


def mixed(n: int) -> list[Body]:
    thought = {"type": "reasoning", "id": f"r{n}", "summary": [], "encrypted_content": "e"}
    made = [{"type": "function_call", "call_id": f"{name}{n}", "name": "f", "arguments": "{}"} for name in "ab"]
    done = [{"type": "function_call_output", "call_id": f"{name}{n}", "output": "text " * 30} for name in "ba"]
    return [thought, *made, *done, *web(n), *shell(n)]


@pytest.mark.parametrize("tool", [shell, web, mixed])
def test_items_of_the_providers_own_tools_stay_on_one_branch_paired_and_whole(
    tool: Callable[[int], list[Body]],
) -> None:
    """A call is sent with its output or not at all, and no step is archived before its last item has come."""
    memory = opened(policy={"high_water_tokens": 900, "low_water_tokens": 300, "keep_tokens": 200})
    history: list[Body] = []
    for number in range(12):
        for one in ([item("user", f"Task {number}.")] if number % 4 == 0 else []) + tool(number):
            history.append(one)
            dispatch = memory.pre_turn_dispatch(history)
            assert memory.post_turn_response(dispatch, CALLED).branch == "s"
            named = [(m["type"], m["call_id"]) for m in dispatch.messages if "call_id" in m]
            calls, outputs = ([i for kind, i in named if kind.endswith(end)] for end in ("_call", "_output"))
            assert sorted(calls) == sorted(outputs)
    final = {step.payload for step in Reader(make("openai-responses", "s", METER)).read(history).steps}
    kept = {memory.store.get(step_id).payload for step_id in memory.store.entries}
    assert kept <= final
    assert memory.folded or memory.view.cut


def test_thinking_between_calls_is_sent_where_it_stands_byte_for_byte() -> None:
    """D6: at every call of a long turn in which older results are cut. A text may stand behind a call, too."""

    def thinking(n: int, words: str) -> Body:
        return {"type": "thinking", "thinking": words, "signature": f"c2ln{n}{words}"}

    memory = opened(policy={"high_water_tokens": 900, "low_water_tokens": 300, "keep_tokens": 200})
    history: list[Body] = [user("Go.")]
    for n in range(8):
        uses = [{"type": "tool_use", "id": f"{name}{n}", "name": "f", "input": {"z": 1.0, "a": n}} for name in "pq"]
        turn = [
            thinking(n, "one"),
            uses[0],
            thinking(n, "two"),
            {"type": "text", "text": "And"},
            uses[1],
            thinking(n, "end"),
        ]
        answers = [{"type": "tool_result", "tool_use_id": f"{name}{n}", "content": "text " * 60} for name in "qp"]
        history += [{"role": "assistant", "content": turn}, {"role": "user", "content": answers}]
        dispatch = memory.pre_turn_dispatch(history, dialect="anthropic")
        memory.post_turn_response(dispatch, CALLED)
        sent, came = ([json.dumps(m) for m in ms if m["role"] == "assistant"] for ms in (dispatch.messages, history))
        assert sent == came
    assert memory.view.cut
    assert json.loads(memory.store.get(1).payload) == history[1:3]


# -- D5: names of branches


def send(memory: Harness, *texts: str) -> str:
    """One call, texts of user and assistant in turn; gives the branch."""
    history = [answer(text) if number % 2 else user(text) for number, text in enumerate(texts)]
    return memory.post_turn_response(memory.pre_turn_dispatch(history), "ok").branch


def files(root: Path, session: str) -> dict[str, bytes]:
    folder = root / session_folder(session)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fold_and_forget(memory: Harness) -> None:
    """As `mmu fold` and `mmu forget` do."""
    memory.mmu.fold("My own text.", 1)
    memory.forget(1)


OWNERS: dict[str, Callable[[Harness], Any]] = {
    "has steps": lambda memory: send(memory, "Mine."),
    "has only pins": lambda memory: memory.pin(3),
    "has only receipts": lambda memory: memory.post_turn_response(memory.pre_turn_dispatch([{"role": "wizard"}]), "ok"),
    "forgot all its steps": fold_and_forget,
}


@pytest.mark.parametrize("about", OWNERS)
def test_a_branch_never_takes_the_session_of_somebody_else(tmp_path: Path, about: str) -> None:
    with opened(tmp_path, "s~2", on_fault="bypass") as memory:
        OWNERS[about](memory)
    before = files(tmp_path, "s~2")
    with opened(tmp_path) as memory:
        assert send(memory, "One.", "ok", "Two.", "ok", "Three.") == "s"
        assert send(memory, "One.", "ok", "Another way.") == "s~3"
    assert files(tmp_path, "s~2") == before
    opened(tmp_path, "s~2").close()


@pytest.mark.parametrize("gone", ["", BRANCHES_FILE])
def test_a_branch_is_not_opened_as_a_session_of_its_own(tmp_path: Path, gone: str) -> None:
    with opened(tmp_path) as memory:
        send(memory, "One.", "ok", "Two.", "ok", "Three.")
        assert send(memory, "One.", "ok", "Another way.") == "s~2"
    if gone:
        (tmp_path / session_folder("s") / gone).unlink()
    before = files(tmp_path, "s~2")
    with pytest.raises(BranchError, match="'s~2' is a branch of 's'; open 's'"):
        opened(tmp_path, "s~2")
    assert files(tmp_path, "s~2") == before
