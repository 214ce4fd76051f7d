"""Forgetting on request: nothing of a step is left, and a client that sends it again does not bring it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock, forgetting
from store import ColdStore, FileStore, MemoryStore, NodeNotFoundError

CANARY = "KANARIE-8931"
SECRET = f"The {CANARY} relay listens on port 7002."
POLICY = {"high_water_tokens": 400, "low_water_tokens": 150}
AT = "2026-12-01T00:00:00Z"


def opened(store: ColdStore | Path) -> Harness:
    return Harness.open(store, session="s", policy=POLICY, client=ScriptedClient([]), clock=fixed_clock())


def say(memory: Harness, history: list[dict[str, Any]], text: str, reply: str = "ok") -> Any:
    history.append({"role": "user", "content": text})
    dispatch = memory.pre_turn_dispatch(history)
    memory.post_turn_response(dispatch, reply)
    history.append({"role": "assistant", "content": reply})
    return dispatch


def long_talk(memory: Harness) -> list[dict[str, Any]]:
    """A history whose step 2 holds the canary, is folded by now, and was brought back once."""
    history: list[dict[str, Any]] = []
    say(memory, history, "Hello.")
    say(memory, history, SECRET, "noted")
    for number in range(8):
        say(memory, history, f"Note {number}: " + "nothing of interest " * 20)
    dispatch = say(memory, history, f"Which port does the relay {CANARY[:3]} use?")
    assert [piece.step_id for piece in dispatch.draft.hydrated] == [2]
    return history


def holding(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text, in whatever case."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if text.lower().encode() in path.read_bytes().lower()]


def test_no_file_holds_a_word_of_it_and_the_chain_still_closes(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        long_talk(memory)
        assert holding(tmp_path, CANARY)
        assert [target.step_id for target in memory.forget(matching=CANARY.lower())] == [2]
        assert holding(tmp_path, CANARY) == []
        assert memory.ledger.read()[1] == ()
        with pytest.raises(NodeNotFoundError):
            memory.store.get(2)
    assert holding(tmp_path, CANARY) == [], "nor does closing write it again"
    audit = FileStore(tmp_path, "s").validate()
    assert (audit.faults, audit.forgotten) == ((), (2,))


def test_it_is_gone_from_the_open_turn_and_from_the_hot_lines(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    history = long_talk(memory)
    history.append({"role": "user", "content": "Which port does the relay use?"})
    before = memory.pre_turn_dispatch(history)
    assert CANARY in json.dumps(before.messages)
    memory.forget(2)
    after = memory.pre_turn_dispatch(history)
    assert CANARY not in json.dumps(after.messages)
    assert after.draft.hydrated == ()
    assert holding(tmp_path, CANARY) == []


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_what_the_client_still_sends_of_it_is_neither_archived_nor_sent(tmp_path: Path, place: str) -> None:
    memory = opened(tmp_path if place == "disk" else MemoryStore("s"))
    history = long_talk(memory)
    memory.forget(2)
    for _ in range(3):
        dispatch = say(memory, history, "Which port does the relay use now?")
        assert dispatch.draft.forgotten == (2,)
        assert CANARY not in json.dumps(dispatch.messages)
        assert (dispatch.draft.faults, dispatch.draft.hydrated) == ((), ())
    assert not any(CANARY in memory.store.get(step_id).rendering for step_id in memory.store.entries)
    if place == "disk":
        memory.close()
        again = opened(tmp_path)
        assert say(again, history, "And now?").draft.forgotten == (2,)
        assert holding(tmp_path, CANARY) == []


def test_the_same_words_said_again_are_a_new_step(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    history = long_talk(memory)
    memory.forget(2)
    dispatch = say(memory, history, SECRET)
    assert dispatch.messages[-1]["content"].endswith(SECRET)
    say(memory, history, "Thanks.")
    assert sum(CANARY in memory.store.get(step_id).rendering for step_id in memory.store.entries) == 1


def test_another_process_that_has_it_at_hand_lets_go_of_it(tmp_path: Path) -> None:
    running = opened(tmp_path)
    history = long_talk(running)
    with FileStore(tmp_path, "s") as other:
        forgetting.forget(other, forgetting.named(other, [2]), at=AT)
    dispatch = say(running, history, "Which port does the relay use?")
    assert (dispatch.draft.forgotten, dispatch.draft.hydrated) == ((2,), ())
    assert running.mmu.recall("relay port")[0].step_id != 2
    running.close()
    assert holding(tmp_path, CANARY) == []


def test_it_is_forgotten_on_every_branch_and_other_steps_stay(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    history = long_talk(memory)
    fork = history[:8]
    say(memory, fork, f"Another way: {CANARY} again.")
    say(memory, fork, "Go on.")
    assert memory.view is not None and len(list(forgetting.sessions_of(memory.store))) == 2
    gone = memory.forget(matching=CANARY)
    assert [(target.session, target.step_id) for target in gone] == [("s", 2), ("s~2", 8)]
    assert holding(tmp_path, CANARY) == []
    assert "CANARY" not in json.dumps(say(memory, fork, "Which port does the relay use?").messages)
    memory.close()
    for session in ("s", "s~2"):
        assert FileStore(tmp_path, session).validate().faults == ()


def retained(memory: Harness, **rule: Any) -> list[int]:
    return [target.step_id for target in forgetting.outdated(memory.store, **rule)]


def test_retention_gives_up_the_old_and_what_does_not_fit(tmp_path: Path) -> None:
    times = iter(f"2026-01-{day:02d}T00:00:00Z" for day in range(1, 29))
    store = FileStore(tmp_path, "s")
    with opened(store) as memory:
        memory.mmu._now = lambda: next(times)
        for step_id in range(10):
            memory.mmu.fold("x" * 100, step_id)
        assert retained(memory, now="2026-01-10T12:00:00Z", days=7) == [0, 1, 2]
        assert retained(memory, now="2026-01-10T12:00:00Z", keep_bytes=450) == [0, 1, 2, 3, 4, 5]
        assert retained(memory, now="2026-01-10T12:00:00Z", days=2, keep_bytes=950) == list(range(8))
        assert retained(memory, now="2026-01-10T12:00:00Z", days=100, keep_bytes=5_000) == []


def test_a_step_that_does_not_read_is_forgotten_with_what_matches(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        long_talk(memory)
        (memory.store.folder / "cold_nodes/step_000004.json").write_bytes(b"torn")  # type: ignore[attr-defined]
        assert [target.step_id for target in memory.forget(matching=CANARY)] == [2, 4]
        assert memory.store.validate().faults == ()


def test_one_of_two_equal_steps_is_forgotten_and_no_branch_is_opened(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    history: list[dict[str, Any]] = []
    for text in ("Yes.", "And now?", "Yes.", "Good."):
        say(memory, history, text)
    memory.forget(0)
    dispatch = say(memory, history, "More.")
    assert dispatch.draft.forgotten == (0,)
    assert [m["content"] for m in dispatch.messages if m["role"] == "user"] == ["And now?", "Yes.", "Good.", "More."]
    del history[0]
    assert say(memory, history, "Yes.").draft.forgotten == ()
    assert [store.session for store in forgetting.sessions_of(memory.store)] == ["s"]
