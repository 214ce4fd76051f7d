"""What happens when something of ours fails in a live turn: the call goes on, and the receipt says what was."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from store import ColdNode, IndexEntry, IntegrityCheckError, MemoryStore, StoreLockedError, StoreWriteError

RELAY = "Start the relay on port 8931, its name is Kestrel."
QUESTION = "Which port does the relay Kestrel use?"
FULL_DISK = StoreWriteError(Path("log.0"), OSError(errno.ENOSPC, "No space left on device"))


class FailingStore(MemoryStore):
    """A memory store that raises `error` for the operations named in `refuses`: `archive`, `refresh`, or a document."""

    def __init__(self, error: Exception = FULL_DISK) -> None:
        super().__init__()
        self.error = error
        self.refuses: set[str] = set()

    def _check(self, operation: str) -> None:
        if operation in self.refuses:
            raise self.error

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        self._check("archive")
        return super().archive(nodes, flush=flush)

    def refresh(self) -> Sequence[IndexEntry]:
        self._check("refresh")
        return super().refresh()

    def write_document(self, name: str, data: bytes, *, flush: bool = True) -> None:
        self._check(name)
        super().write_document(name, data, flush=flush)

    def append_document(self, name: str, line_after: Callable[[bytes], bytes]) -> None:
        self._check(name)
        super().append_document(name, line_after)


def with_relay(loop: Any) -> Any:
    """The loop after step 2, which names the relay's port, has left the prompt."""
    loop.ask("Hello.", "hi")
    loop.ask(RELAY, "started")
    loop.chat(8)
    assert 2 in loop.memory.folded
    return loop


# -- what is archived is damaged


DAMAGES: dict[str, Callable[[MemoryStore, str], Any]] = {
    "changed": lambda store, file: store.files.update({file: store.files[file].replace(b"8931", b"6666")}),
    "gone": lambda store, file: store.files.pop(file),
    "no JSON": lambda store, file: store.files.update({file: b"{"}),
    "without entry": lambda store, file: store.index.pop(2),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_step_stays_out_the_prompt_goes_and_the_receipt_says_so(loop: Any, damage: str) -> None:
    with_relay(loop)
    DAMAGES[damage](loop.memory.store, "cold_nodes/step_000002.json")
    loop.history.append({"role": "user", "content": QUESTION})
    dispatch = loop.memory.pre_turn_dispatch(loop.history)
    receipt = loop.memory.post_turn_response(dispatch, "I do not know.")
    assert dispatch.messages[-1] == {"role": "user", "content": QUESTION}
    assert receipt.hydrated == ()
    assert len(receipt.faults) == 1
    assert re.match(r"not hydrated: step 2: |step 2 is not archived|.*step_000002", receipt.faults[0])
    assert [fault.step_id for fault in loop.memory.store.validate().faults] == [2]


def test_a_damaged_step_does_not_hold_back_the_others(loop: Any) -> None:
    loop.ask("Hello.", "hi")
    loop.ask(RELAY, "started")
    loop.ask("The falcon port is 7002.", "noted")
    loop.chat(8)
    DAMAGES["changed"](loop.memory.store, "cold_nodes/step_000002.json")
    receipt = loop.ask("Which ports do relay Kestrel and falcon use?")
    assert [h.step_id for h in receipt.hydrated] == [4]
    assert "8931" not in loop.request()
    assert "7002" in loop.prompt()


def test_a_step_that_cannot_be_read_back_does_not_fold(loop: Any) -> None:
    loop.ask("Hello.", "hi")
    loop.ask(RELAY, "started")
    DAMAGES["changed"](loop.memory.store, "cold_nodes/step_000002.json")
    loop.chat(8)
    assert 2 not in loop.memory.folded
    assert {1, 3, 4} <= loop.memory.folded
    assert RELAY in loop.request()
    assert any(fault.startswith("not folded: step 2") for r in loop.receipts for fault in r.faults)


# -- the store refuses


@pytest.mark.parametrize("error", [FULL_DISK, StoreLockedError(Path("lock"), 10, "process 7")], ids=["full", "locked"])
def test_without_an_archive_nothing_folds_and_the_receipt_says_why(make_loop: Any, error: Exception) -> None:
    loop = make_loop(FailingStore(error))
    loop.memory.store.refuses.add("archive")
    loop.chat(10)
    assert loop.sent[-1] == loop.history[:-1]
    assert loop.memory.folded == frozenset()
    assert all(r.faults == (f"not archived: {error}",) and r.archived == () for r in loop.receipts)
    loop.memory.store.refuses.clear()
    receipt = loop.ask("Go on.")
    assert receipt.archived == tuple(range(21))
    assert receipt.faults == ()
    loop.chat(2, start=10)
    assert len(loop.memory.folded) > 10
    assert loop.memory.store.validate().faults == ()


def test_a_view_that_cannot_be_saved_does_not_fold_and_sizes_stay_right(make_loop: Any) -> None:
    """Another process would send other bytes. `loop` checks S at every call."""
    loop = make_loop(FailingStore())
    loop.memory.store.refuses.add("view.json")
    loop.chat(8)
    assert loop.memory.folded == frozenset()
    assert loop.sent[-1] == loop.history[:-1]
    late = [r for r in loop.receipts if r.faults]
    assert len(late) > 2
    assert all(r.faults == (f"not folded: {FULL_DISK}",) and r.folded == () for r in late)
    assert [step for r in loop.receipts for step in r.archived] == list(range(15))
    loop.memory.store.refuses.clear()
    assert loop.ask("Go on.").folded != ()


@pytest.mark.parametrize(
    ("document", "fault"),
    [("open_turn.json", "the open turn was not saved: "), ("ledger.jsonl", "not booked: ")],
)
def test_a_document_that_cannot_be_written_does_not_stop_the_turn(make_loop: Any, document: str, fault: str) -> None:
    loop = make_loop(FailingStore())
    with_relay(loop)
    loop.memory.store.refuses.add(document)
    receipt = loop.ask(QUESTION, "8931")
    assert RELAY in loop.prompt()
    assert receipt.faults[0] == f"{fault}{FULL_DISK}"
    assert receipt.evicted == (2,)
    loop.memory.store.refuses.clear()
    assert loop.ask("Thanks.").faults == ()
    assert "<archived-steps " not in loop.request()


# -- a fault that nobody foresaw


def test_a_fault_of_ours_sends_the_callers_messages_and_the_receipt_says_why(make_loop: Any) -> None:
    loop = make_loop(FailingStore(RuntimeError("a bug")), on_fault="bypass")
    with_relay(loop)
    loop.memory.store.refuses.add("refresh")
    receipt = loop.ask(QUESTION, "8931")
    assert loop.sent[-1] == loop.history[:-1]
    assert (receipt.mode, receipt.outcome) == ("bypass", "answered")
    assert receipt.faults == ("bypassed: RuntimeError: a bug",)
    assert loop.memory.receipts[-1] == receipt


def test_after_a_bypassed_call_the_session_goes_on(make_loop: Any) -> None:
    loop = make_loop(FailingStore(RuntimeError("a bug")), on_fault="bypass")
    with_relay(loop)
    before = loop.receipts[-1]
    loop.memory.store.refuses.add("refresh")
    loop.ask("Lost.", "ok")
    loop.memory.store.refuses.clear()
    loop.receipts.append(before)  # S goes on from the last call that we planned
    receipt = loop.ask(QUESTION, "8931")
    assert [h.step_id for h in receipt.hydrated] == [2]
    assert loop.memory.store.validate().faults == ()


def test_a_bypassed_call_in_a_tool_loop_does_not_end_the_turn(make_loop: Any) -> None:
    loop = make_loop(FailingStore(RuntimeError("a bug")), on_fault="bypass")
    with_relay(loop)
    loop.ask(QUESTION, loop.exchange("bash", {"command": "ping"}, "pong", "c1"))
    in_place = loop.sent[-1]
    loop.memory.store.refuses.add("refresh")
    dispatch = loop.memory.pre_turn_dispatch(loop.history)
    work = loop.exchange("bash", {"command": "ping again"}, "pong", "c2")
    assert dispatch.messages == loop.history
    loop.memory.post_turn_response(dispatch, work[0])
    loop.history += work
    loop.memory.store.refuses.clear()
    opened = loop.receipts[-1]
    receipt = loop.send("8931")
    assert loop.sent[-1][: len(in_place)] == in_place
    assert (receipt.turn, receipt.dispatch, receipt.evicted) == (opened.turn, 2, (2,))


def test_on_fault_raise_lets_it_fly_and_keeps_the_session_usable(make_loop: Any) -> None:
    loop = make_loop(FailingStore(RuntimeError("a bug")))
    with_relay(loop)
    loop.memory.store.refuses.add("refresh")
    with pytest.raises(RuntimeError, match="a bug"):
        loop.memory.pre_turn_dispatch([*loop.history, {"role": "user", "content": QUESTION}])
    loop.memory.store.refuses.clear()
    assert [h.step_id for h in loop.ask(QUESTION, "8931").hydrated] == [2]


def test_a_request_that_no_provider_would_take_is_healed_on_its_way_and_the_receipt_says_so(make_loop: Any) -> None:
    loop = make_loop()
    with_relay(loop)
    torn = [*loop.history, loop.calling(loop.call("bash", {})), {"role": "user", "content": QUESTION}]
    dispatch = loop.memory.pre_turn_dispatch(torn)
    receipt = loop.memory.post_turn_response(dispatch, "ok")
    assert "no result" in dispatch.messages[-2]["content"]
    assert dispatch.messages[-2]["tool_call_id"] == "c1"
    assert receipt.faults[0].startswith("healed: message ")
    assert "no answer to call 'c1'" in receipt.faults[0]


def test_a_fault_that_opening_found_is_there_to_be_read(make_loop: Any) -> None:
    store = MemoryStore()
    store.faults = (IntegrityCheckError(7, "payload_sha256", "a" * 64, "b" * 64),)
    loop = make_loop(store)
    assert loop.memory.faults == (str(store.faults[0]),)
    assert loop.ask("Hello.").faults == ()
