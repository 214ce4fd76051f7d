"""The life of a turn: restart, siblings, `turn()`, the switches, receipts and their ledger."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from harness import DispatchError, Harness, Receipt, ScriptedClient, document, fixed_clock
from harness.ledger import LEDGER_FILE, LedgerFault
from store import FileStore, MemoryStore

QUESTION = "Which port does the relay Kestrel use?"


def with_relay(loop: Any) -> Any:
    """The loop after step 2, which names the relay's port, has left the prompt."""
    loop.ask("Hello.", "hi")
    loop.ask("Start the relay on port 8931, its name is Kestrel.", "started")
    loop.chat(8)
    return loop


def reopened(loop: Any, make_loop: Any, root: Path) -> Any:
    """Another process that takes the session up, with the same history."""
    loop.memory.close()
    again = make_loop(FileStore(root, "s"), history=loop.history)
    again.receipts, again.sent = loop.receipts, loop.sent
    return again


# -- restart


def test_a_restart_in_a_tool_loop_sends_the_same_bytes(make_loop: Any, tmp_path: Path) -> None:
    loop = with_relay(make_loop(FileStore(tmp_path, "s")))
    loop.ask(QUESTION, loop.exchange("bash", {"command": "ping relay kestrel port"}, "pong"))
    loop = reopened(loop, make_loop, tmp_path)
    receipt = loop.send("8931", continues=True)
    assert (receipt.dispatch, receipt.evicted) == (2, (2,))


def test_a_call_that_was_never_answered_is_sent_again_with_the_same_bytes(make_loop: Any, tmp_path: Path) -> None:
    """Closed with a call under way, once at the turn's first call and once in its tool loop."""
    loop = with_relay(make_loop(FileStore(tmp_path, "s")))
    loop.history.append({"role": "user", "content": QUESTION})
    for name in ("first", "second"):
        unanswered = loop.memory.pre_turn_dispatch(loop.history)
        assert "<archived-steps " in json.dumps(unanswered.messages)
        loop = reopened(loop, make_loop, tmp_path)
        assert loop.memory.receipts[-1].outcome == "unanswered"
        loop.receipts.append(loop.memory.receipts[-1])
        work = loop.exchange("bash", {"command": f"ping relay kestrel port {name}"}, "pong")
        loop.send(work[0])
        assert loop.sent[-1] == unanswered.messages
        loop.history += work
    loop.send("8931", continues=True)
    assert [r.evicted for r in loop.receipts[-5:]] == [(), (), (), (), (2,)]


def test_a_turn_that_was_cut_off_leaves_the_prompt_when_the_next_one_opens(make_loop: Any, tmp_path: Path) -> None:
    loop = with_relay(make_loop(FileStore(tmp_path, "s")))
    loop.history.append({"role": "user", "content": QUESTION})
    loop.memory.pre_turn_dispatch(loop.history)
    loop = reopened(loop, make_loop, tmp_path)
    loop.receipts.append(loop.memory.receipts[-1])
    receipt = loop.ask("Never mind.", "ok")
    assert (receipt.evicted, receipt.hydrated) == ((2,), ())
    assert "<archived-steps " not in loop.request()


def test_a_session_goes_on_after_a_restart_as_if_there_had_been_none(make_loop: Any, tmp_path: Path) -> None:
    whole, parts = make_loop(FileStore(tmp_path / "a", "s")), make_loop(FileStore(tmp_path / "b", "s"))
    for number in range(14):
        parts = reopened(parts, make_loop, tmp_path / "b")
        for loop in (whole, parts):
            text = f"{QUESTION} {loop.filler(number)}"
            loop.ask(text, loop.exchange("bash", {"command": "date"}, "Monday"), "ok")
    whole.memory.close(), parts.memory.close()
    assert whole.sent == parts.sent
    assert whole.receipts == parts.receipts

    def files(root: Path) -> dict[str, bytes]:
        return {
            str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.json*") if p.name != "recall_index.json"
        }

    assert files(tmp_path / "a") == files(tmp_path / "b")


# -- siblings


def test_a_second_call_of_the_same_prefix_is_a_sibling_and_evicts_nothing(loop: Any) -> None:
    with_relay(loop)
    loop.history.append({"role": "user", "content": QUESTION})
    first, second = (loop.memory.pre_turn_dispatch(loop.history) for _ in range(2))
    assert first.messages == second.messages
    receipts = loop.memory.post_turn_response(second, "8931"), loop.memory.post_turn_response(first, "8931")
    assert [(r.turn, r.dispatch, r.sibling, r.evicted) for r in receipts] == [
        (first.turn, 2, True, ()),
        (first.turn, 1, False, (2,)),
    ]


def test_dispatches_from_many_threads_are_booked_once_each(loop: Any) -> None:
    with_relay(loop)
    loop.history.append({"role": "user", "content": QUESTION})
    start, sent = threading.Barrier(8), []

    def call() -> None:
        start.wait()
        dispatch = loop.memory.pre_turn_dispatch(loop.history)
        sent.append(json.dumps(dispatch.messages))
        loop.memory.post_turn_response(dispatch, "8931")

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(sent)) == 1
    assert len(sent) == 8
    assert len(loop.memory.receipts) == 10 + 8
    assert loop.memory.ledger.read()[1] == ()


# -- the hooks as a context


def test_turn_is_both_hooks_as_a_context(loop: Any) -> None:
    with_relay(loop)
    loop.history.append({"role": "user", "content": QUESTION})
    with loop.memory.turn(loop.history) as turn:
        assert "8931" in json.dumps(turn.messages)
        assert turn.receipt is None
        turn.reply = {"role": "assistant", "content": "8931"}
    assert (turn.receipt.outcome, turn.receipt.evicted) == ("answered", (2,))


def test_an_exception_inside_a_turn_flies_on_and_is_booked_as_failed(loop: Any) -> None:
    with_relay(loop)
    loop.history.append({"role": "user", "content": QUESTION})
    with pytest.raises(KeyboardInterrupt), loop.memory.turn(loop.history) as turn:
        raise KeyboardInterrupt
    assert (turn.receipt.outcome, turn.receipt.evicted) == ("failed", (2,))
    assert loop.memory.receipts[-1] == turn.receipt


def test_a_dispatch_is_answered_once_and_by_its_own_session(loop: Any, make_loop: Any) -> None:
    loop.history.append({"role": "user", "content": "Hello."})
    dispatch = loop.memory.pre_turn_dispatch(loop.history)
    with pytest.raises(DispatchError, match="not open here"):
        make_loop().memory.post_turn_response(dispatch, "hi")
    loop.memory.post_turn_response(dispatch, "hi")
    with pytest.raises(DispatchError, match="answered before"):
        loop.memory.post_turn_response(dispatch, "hi")
    assert len(loop.memory.receipts) == 1


# -- switches


@pytest.mark.parametrize("value", ["1", "true"])
def test_mmu_off_writes_nothing_and_sends_the_callers_messages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.setenv("MMU_OFF", value)
    client = ScriptedClient(["a"] * 20)
    history: list[Any] = []
    with Harness.open(
        tmp_path / "store", client=client, policy={"high_water_tokens": 10, "low_water_tokens": 1}
    ) as memory:
        for number in range(10):
            history += [{"role": "user", "content": f"Number {number}."}, {"role": "assistant", "content": "ok"}]
            memory.completion(model="m", messages=history)
            assert client.requests[-1] == history
        assert memory.receipts == ()
    assert list(tmp_path.iterdir()) == []


def test_mmu_off_set_to_zero_or_nothing_leaves_it_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, value in enumerate(("0", "")):
        monkeypatch.setenv("MMU_OFF", value)
        with Harness.open(tmp_path / str(number), client=ScriptedClient(["a"])) as memory:
            memory.completion(messages=[{"role": "user", "content": "Hello."}])
            assert len(memory.store.entries) == 1


# -- receipts and the ledger


def test_one_receipt_for_each_call_and_they_read_back_as_they_were(make_loop: Any, tmp_path: Path) -> None:
    loop = with_relay(make_loop(FileStore(tmp_path, "s")))
    loop.ask(QUESTION, loop.exchange("bash", {"command": "ping"}, "pong"), "8931")
    assert [(r.turn, r.dispatch) for r in loop.receipts] == [*((n, 1) for n in range(1, 12)), (11, 2)]
    assert loop.memory.receipts == tuple(loop.receipts)
    assert document.read(Receipt, json.loads(json.dumps(loop.receipts[-1].document()))) == loop.receipts[-1]
    loop = reopened(loop, make_loop, tmp_path)
    assert loop.memory.receipts == tuple(loop.receipts)


def test_every_step_is_archived_once_and_at_the_first_call_that_shows_it_whole(loop: Any) -> None:
    with_relay(loop)
    archived = [step for r in loop.receipts for step in r.archived]
    assert archived == sorted(loop.memory.store.entries)
    assert loop.receipts[0].archived == (0,)
    assert loop.receipts[1].archived == (1, 2)


def test_the_full_history_is_counted_beside_what_was_sent(loop: Any, meter: Any) -> None:
    with_relay(loop)
    whole = 3 + sum(4 + meter.count(m["content"]) for m in loop.history[:-1])
    assert loop.receipts[-1].full == whole
    assert loop.receipts[-1].sent < whole / 2


EDITS = {
    "a number in line 2": (lambda lines: [lines[0], lines[1].replace(b'"turn":2', b'"turn":7'), *lines[2:]], (2,)),
    "line 2 taken out": (lambda lines: [lines[0], *lines[2:]], (2,)),
    "lines 2 and 3 exchanged": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], (2, 3, 4)),
    "line 3 is no JSON": (lambda lines: [*lines[:2], b"{", *lines[3:]], (3,)),
    "line 4 is another thing": (lambda lines: [*lines[:3], b"[1]"], (4,)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_shows_where_it_no_longer_follows(loop: Any, edit: str) -> None:
    for text in ("one", "two", "three", "four"):
        loop.ask(text)
    change, lines = EDITS[edit]
    files = loop.memory.store.files
    files[LEDGER_FILE] = b"\n".join(change(files[LEDGER_FILE].splitlines())) + b"\n"
    receipts, faults = loop.memory.ledger.read()
    assert tuple(fault.line for fault in faults) == lines
    assert len(receipts) >= 2
    if "taken out" in edit:
        assert faults == (LedgerFault(2, "does not follow the line before"),)


def test_the_ledger_goes_on_behind_a_torn_line(make_loop: Any, tmp_path: Path) -> None:
    loop = make_loop(FileStore(tmp_path, "s"))
    loop.ask("one"), loop.ask("two")
    path = loop.memory.store.folder / LEDGER_FILE
    path.write_bytes(path.read_bytes()[:-40])
    loop.ask("three")
    receipts, faults = loop.memory.ledger.read()
    assert [r.turn for r in receipts] == [1, 3]
    assert [fault.line for fault in faults] == [2]


def test_times_are_those_of_the_clock_that_was_handed_in(make_loop: Any) -> None:
    loop = make_loop(clock=fixed_clock(0.0))
    assert loop.ask("Hello.").at == "1970-01-01T00:00:00Z"
    assert loop.memory.store.get(0).folded_at == "1970-01-01T00:00:00Z"


def test_a_harness_closes_at_the_end_of_its_with_block_and_books_what_is_open() -> None:
    with Harness.open(MemoryStore(), client=ScriptedClient([]), clock=fixed_clock()) as memory:
        memory.pre_turn_dispatch([{"role": "user", "content": "Hello."}])
    assert [r.outcome for r in memory.receipts] == ["unanswered"]
