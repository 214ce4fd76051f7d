"""Secrets stay out of every file of the store, whatever dialect they come in; the model sees what its client shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock
from harness.reader import Redact
from store import FileStore

SECRET = "ghp" + "_" + "Zx81" * 9
KIND = "github token"
POLICY = {"high_water_tokens": 500, "low_water_tokens": 200, "keep_tokens": 100}
Messages = list[dict[str, Any]]


def opened(store: Path, redact: Redact, **options: Any) -> Harness:
    options = {"on_fault": "raise", **options}
    return Harness.open(
        store, session="s", policy=POLICY, client=ScriptedClient([]), clock=fixed_clock(), redact=redact, **options
    )


def chat(text: str, result: str) -> Messages:
    call = {"id": "c1", "type": "function", "function": {"name": "set", "arguments": json.dumps({"token": text})}}
    return [
        {"role": "user", "content": f"Log in with {text}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def responses(text: str, result: str) -> Messages:
    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Log in with {text}"}]},
        {"type": "function_call", "call_id": "c1", "name": "set", "arguments": json.dumps({"token": text})},
        {"type": "function_call_output", "call_id": "c1", "output": result},
    ]


def anthropic(text: str, result: str) -> Messages:
    return [
        {"role": "user", "content": [{"type": "text", "text": f"Log in with {text}"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "set", "input": {"token": text}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}]},
    ]


DIALECTS = {"openai-chat": chat, "openai-responses": responses, "anthropic": anthropic}


def plain(dialect: str, role: str, text: str) -> dict[str, Any]:
    if dialect == "openai-responses":
        return {"type": "message", "role": role, "content": text}
    return {"role": role, "content": text}


def talk(memory: Harness, dialect: Any, turns: int = 8) -> Messages:
    """A talk with the secret in a prompt, a call and a result, and turns enough that it would fold."""
    history = [*DIALECTS[dialect](SECRET, f"token {SECRET} accepted")]
    for number in range(turns):
        dispatch = memory.pre_turn_dispatch(history, dialect=dialect)
        memory.post_turn_response(dispatch, "ok")
        history.append(plain(dialect, "assistant", "ok"))
        history.append(plain(dialect, "user", f"Note {number}: " + "nothing of interest " * 20))
    return history


def holding(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("redact", [True, "fold"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_file_holds_it_and_the_receipt_counts_it(dialect: str, redact: Redact, tmp_path: Path) -> None:
    with opened(tmp_path, redact) as memory:
        history = talk(memory, dialect)
        dispatch = memory.pre_turn_dispatch(
            [*history, plain(dialect, "user", f"Which token, {SECRET} or another, did the set tool accept?")],
            dialect=dialect,
        )
        memory.post_turn_response(dispatch, "ok")
        found = [(one.kind, one.count) for receipt in memory.receipts for one in receipt.redacted]
        assert found == [(KIND, 3), (KIND, 1)]
        assert sum(memory.store.get(step).sanitized.get(KIND, 0) for step in memory.store.entries) == 4
    assert holding(tmp_path) == []
    assert FileStore(tmp_path, "s").validate().faults == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_it_the_store_keeps_what_came(dialect: str, tmp_path: Path) -> None:
    with opened(tmp_path, False) as memory:
        talk(memory, dialect)
    assert holding(tmp_path)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_step_that_held_one_stays_in_the_prompt_as_it_was(dialect: str, tmp_path: Path) -> None:
    """What was taken out could not come back."""
    with opened(tmp_path, True) as memory:
        history = talk(memory, dialect)
        sent = memory.pre_turn_dispatch(history, dialect=dialect)
        assert json.dumps(sent.messages).count(SECRET) == 3
        assert memory.folded
        emergency = memory.pre_turn_dispatch(history, dialect=dialect, emergency=True)
        assert json.dumps(emergency.messages).count(SECRET) == 3


def test_with_fold_it_may_leave_and_comes_back_without_the_secret(tmp_path: Path) -> None:
    with opened(tmp_path, "fold") as memory:
        history = talk(memory, "openai-chat")
        sent = [m for m in memory.pre_turn_dispatch(history).messages if "Log in" not in str(m)]
        assert SECRET not in json.dumps(sent), "only the session's first message stays for good"
        history.append({"role": "user", "content": "What did the set tool say of the token: accepted?"})
        block = json.dumps(memory.pre_turn_dispatch(history).messages[-1])
        assert f"[redacted: {KIND}]" in block
        assert SECRET not in block


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_process_knows_the_steps_of_a_client_that_sends_the_secret_again(dialect: str, tmp_path: Path) -> None:
    with opened(tmp_path, True) as memory:
        history = talk(memory, dialect)
        before = set(memory.store.entries)
    with opened(tmp_path, True) as again:
        dispatch = again.pre_turn_dispatch(history, dialect=dialect)
        assert min(dispatch.draft.archived) > max(before), "only what is new"
        assert again._branches._forks == ()


def test_what_is_sent_is_never_redacted(tmp_path: Path) -> None:
    with opened(tmp_path, True) as memory:
        history = chat(SECRET, f"token {SECRET} accepted")
        assert memory.pre_turn_dispatch(history).messages == history
