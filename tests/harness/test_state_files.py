"""State files of a session that were edited, cut or damaged: each is refused by file and field, in the library, in a live
turn and on the command line. Nothing of them reaches a prompt, and what was acknowledged stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, ScriptedClient, fixed_clock
from harness.branches import BRANCH_FILE, BRANCHES_FILE
from harness.cli import main
from harness.ledger import LEDGER_FILE
from harness.view import TURN_FILE, VIEW_FILE
from mmu.envelope import seal
from mmu.tokens import open_meter
from store import FileStore, StoreFormatError, StoreWriteError, session_folder
from store.log import Record, frame, records

Body = dict[str, Any]
RELAY = "The relay listens on port 7002."
ASK: Body = {"role": "user", "content": "Which port does the relay use?"}
METER = open_meter()


def opened(store: Path, **options: Any) -> Harness:
    policy = {"high_water_tokens": 400, "low_water_tokens": 150}
    given = {"client": ScriptedClient([]), "clock": fixed_clock(), "meter": METER, **options}
    return Harness.open(store, session="s", policy=policy, **given)


def say(memory: Harness, history: list[Body], text: str) -> Any:
    history.append({"role": "user", "content": text})
    receipt = memory.post_turn_response(memory.pre_turn_dispatch(history), "ok")
    history.append({"role": "assistant", "content": "ok"})
    return receipt


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Body]]:
    """A store with session `s`: folded steps, a branch `s~2`, and an open turn for which step 2 was brought back."""
    root, history = tmp_path_factory.mktemp("made") / ".mmu", list[Body]()
    memory = opened(root)
    for text in ("Hello.", RELAY, *(f"Note {number}: " + "nothing of interest " * 20 for number in range(9))):
        say(memory, history, text)
    say(memory, history[:6], "Another way.")
    history.append(ASK)
    assert [one.step_id for one in memory.pre_turn_dispatch(history).draft.hydrated] == [2]
    memory._branches.close()  # the process ends before an answer comes
    return root, history


@pytest.fixture
def store(made: tuple[Path, list[Body]], tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(made[0], tmp_path / ".mmu"))


@pytest.fixture
def history(made: tuple[Path, list[Body]]) -> list[Body]:
    return list(made[1])


def of(store: Path) -> Path:
    return store / session_folder("s")


def edit(path: Path, change: Callable[[Body], Any]) -> None:
    document = json.loads(path.read_bytes())
    change(document["state"])
    path.write_text(json.dumps(document))


@pytest.fixture
def mmu(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    """Runs a command about session `s`: exit code and output. An exception that is not ours flies: it is a traceback."""
    monkeypatch.setenv("MMU_STORE", str(store))
    monkeypatch.setenv("MMU_SESSION", "s")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mmu", *words])
        code: Any = 0
        try:
            main()
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return run


# -- D9 D10 D11: whatever stands in a field, the error names file and field

BLOCK = {"step_id": 22, "text": "words", "tail": False}
FIELDS: dict[tuple[str, str], list[Any]] = {
    **{(VIEW_FILE, f): [{}, "1", 1, None, ["1"], [True], [[1]], [2**70]] for f in ("folded", "lined", "cut", "pins")},
    **{(TURN_FILE, f): ["1", None, 1.5, True, []] for f in ("number", "dispatches", "left", "scanned", "hot")},
    (TURN_FILE, "opening"): ["22", [22], 1.5],
    (TURN_FILE, "blocks"): [{}, [1], [{}], [{**BLOCK, "step_id": "x"}], [{**BLOCK, "text": 7}], [{**BLOCK, "tail": 1}]],
    (TURN_FILE, "hydrated"): ["x", [1], [{}], [{"step_id": 2}]],
    (TURN_FILE, "missing"): [{}, ["x"], 3],
    (TURN_FILE, "at"): ["now", None, []],
    (BRANCHES_FILE, "current"): [1, None, ["s"]],
    (BRANCHES_FILE, "forks"): [{}, "s~2", [1], [{}], [{"session": 1}], [{"session": "a", "step": "6"}]],
}


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_of_another_type_is_refused_by_file_and_field(store: Path, name: str, field: str) -> None:
    path = of(store) / name
    for value in FIELDS[name, field]:
        edit(path, lambda state, value=value: state.update({field: value}))
        with pytest.raises(StoreFormatError) as caught:
            opened(store)
        message = str(caught.value)
        assert message.startswith(f"{path}: unreadable (state.{field}"), message
        assert message.endswith("remove the file to go on")
    path.unlink()
    opened(store).close()


MISFITS: dict[str, Callable[[Body], Any]] = {
    "a current branch that is none": lambda state: state.update(current="nobody"),
    "a parent that is none": lambda state: state["forks"][0].update(parent="nobody"),
    "a branch twice": lambda state: state["forks"].append(state["forks"][0]),
    "the session itself": lambda state: state["forks"][0].update(session="s"),
}


@pytest.mark.parametrize("about", MISFITS)
def test_branches_that_do_not_fit_together_are_refused_with_what_to_do(store: Path, about: str) -> None:
    edit(of(store) / BRANCHES_FILE, MISFITS[about])
    with pytest.raises(StoreFormatError, match=r"branches\.json: .*branch '.*remove the file"):
        opened(store)


@pytest.mark.parametrize("name", [VIEW_FILE, TURN_FILE, BRANCHES_FILE])
def test_a_file_cut_anywhere_is_refused_and_the_session_goes_on_without_it(
    store: Path, history: Any, name: str
) -> None:
    path = of(store) / name
    whole = path.read_bytes()
    for size in range(1, len(whole), len(whole) // 12):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreFormatError, match=name):
            opened(store)
    path.unlink()
    again = opened(store)
    assert "7002" in json.dumps(again.pre_turn_dispatch(history).messages)
    assert again.store.validate().faults == ()


@pytest.mark.parametrize("name", [VIEW_FILE, TURN_FILE, BRANCHES_FILE, BRANCH_FILE])
@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"version":1}', b'\xff{"version":1}', b'{"version":1,"state":[]}'])
def test_on_the_command_line_a_damaged_file_is_one_line_and_a_code(
    store: Path, mmu: Any, name: str, raw: bytes
) -> None:
    (of(store) / name).write_bytes(raw)
    code, out, err = mmu("status")
    assert (code, out, err.count("\n")) == (8, "", 1)
    assert err.startswith(f"mmu: {of(store) / name}: unreadable (")
    code, out, err = mmu("validate")
    assert (code, f"StoreFormatError: {of(store) / name}: " in out, err) == (1, True, "")
    assert mmu("hydrate", "2")[:2] == (0, f"user: {RELAY}\n")


def test_a_forged_receipt_is_named_by_line_and_field_and_the_others_stay(store: Path, mmu: Any) -> None:
    """Its hash is right, a value in it is not; behind it stand bytes that are no line."""
    with opened(store) as memory:
        receipts = memory.receipts
        memory.ledger.append({**receipts[-1].document(), "hydrated": [{"step_id": "2"}]})  # type: ignore[arg-type]
    with (of(store) / LEDGER_FILE).open("ab") as file:
        file.write(b"\xff\x00{\n")
    found, faults = opened(store).ledger.read()
    assert found == receipts
    assert [fault.line for fault in faults] == [len(receipts) + 1, len(receipts) + 2]
    assert "receipt.hydrated[0].step_id: int was expected" in faults[0].reason
    code, out, err = mmu("report", "s")
    assert (code, out.count("\nledger line "), err) == (0, 2, "")
    assert mmu("validate")[0] == 1


@pytest.mark.parametrize("field", ["summary", "tokens", "size", "messages", "match_key", "artifact_sha256", "file"])
def test_a_log_record_of_another_shape_is_a_named_fault(store: Path, history: list[Body], mmu: Any, field: str) -> None:
    """D11: hot lines come from the index. The record's checksum is right, so only its types tell."""
    bodies = [one.body for one in records((of(store) / "log.0").read_bytes()) if isinstance(one, Record)]
    for body in bodies:
        if body["record"] == "archive" and body["entry"]["step_id"] == 2:
            body["entry"][field] = {}
    (of(store) / "log.0").write_bytes(b"".join(map(frame, bodies)))
    code, out, err = mmu("validate")
    assert (code, "log.0" in out, err) == (1, True, "")
    for words in (("status",), ("recall", "relay"), ("hydrate", "2"), ("forget", "2", "--apply")):
        code, _, err = mmu(*words)
        assert err.count("\n") == (code > 0), words
    receipt = opened(store).pre_turn_dispatch(history).draft
    assert (receipt.mode, [fault for fault in receipt.faults if "TypeError" in fault]) == ("active", [])


# -- what a live turn and an open turn make of it


@pytest.mark.parametrize("name", [VIEW_FILE, TURN_FILE])
def test_a_file_damaged_under_an_open_session_costs_no_call(store: Path, history: list[Body], name: str) -> None:
    """The call goes out as it was made, and the receipt names the file."""
    memory = opened(store)
    (of(store) / name).write_bytes(b'{"version":1,"state":{"folded":0,"blocks":0}}')
    receipt = memory.post_turn_response(dispatch := memory.pre_turn_dispatch(history), "7002")
    assert (dispatch.messages, receipt.mode) == (history, "bypass")
    assert str(of(store) / name) in receipt.faults[0]
    (of(store) / name).unlink()
    history += [{"role": "assistant", "content": "7002"}]
    assert say(memory, history, "Thanks.").mode == "active"
    memory.close()
    assert opened(store).store.validate().faults == ()


CHANGES: dict[str, Callable[[str], str]] = {
    "other words": lambda text: text.replace("7002", "6666"),
    "words before it": lambda text: "Obey.\n" + text,
    "words behind it": lambda text: text + "\n\nObey.",
    "the envelope of another session": lambda text: seal("archived-steps", "Obey.", "other"),
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("about", CHANGES)
def test_a_block_that_was_edited_never_stands_in_a_prompt(store: Path, history: list[Body], about: str) -> None:
    live = opened(store)
    edit(of(store) / TURN_FILE, lambda s: s["blocks"][0].update(text=CHANGES[about](s["blocks"][0]["text"])))
    with pytest.raises(StoreFormatError, match=rf"{TURN_FILE}: a block in it was changed; remove the file to go on"):
        opened(store)
    for _ in range(2):
        sent = json.dumps(live.pre_turn_dispatch(history).messages)
        assert "Obey" not in sent
        assert "6666" not in sent
    (of(store) / TURN_FILE).unlink()
    assert RELAY in opened(store).pre_turn_dispatch(history).messages[-1]["content"]


MORE = [{"role": "assistant", "content": "It is 7002."}, {"role": "user", "content": "Thanks."}]
VIEWS = {
    "the open turn's prompt": (22, [], ASK["content"], None),
    "an answer newly met": (23, MORE, "It is 7002.", "step 23 is not archived; it stays in the prompt"),
    "the newest prompt": (24, MORE, "Thanks.", "step 24 is not archived; it stays in the prompt"),
    "a step that never was": (999, MORE, "Thanks.", "999"),
}


@pytest.mark.parametrize("about", VIEWS)
def test_a_view_cannot_fold_a_step_that_is_not_in_the_store(store: Path, history: list[Body], about: str) -> None:
    """D1: the message stays, the receipt says so, and the prompt claims no step that nobody archived."""
    step_id, more, words, fault = VIEWS[about]
    edit(of(store) / VIEW_FILE, lambda state: [state[name].append(step_id) for name in ("folded", "lined", "cut")])
    dispatch = opened(store, on_fault="raise").pre_turn_dispatch([*history, *more])
    assert any(words in str(message["content"]) for message in dispatch.messages)
    assert "999" not in json.dumps(dispatch.messages)
    assert fault is None or any(fault in one for one in dispatch.draft.faults)


# -- D13: a full disk at the end


@pytest.mark.parametrize("on_fault", ["bypass", "raise"])
def test_closing_on_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_fault: str) -> None:
    """The system itself refuses each write, so steps are neither filed nor marked; the log has them."""

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    memory, history = opened(tmp_path, on_fault=on_fault), list[Body]()
    say(memory, history, RELAY)
    say(memory, history, "Go on.")
    memory.pre_turn_dispatch([*history, ASK])  # never answered
    with monkeypatch.context() as patch:
        for call in ("pwrite", "write", "fsync", "ftruncate"):
            patch.setattr(os, call, full)
        if on_fault == "raise":
            with pytest.raises(StoreWriteError, match="No space left"):
                memory.close()
        else:
            with pytest.warns(RuntimeWarning, match=r"not filed: .*No space left") as warned:
                memory.close()
            assert len(warned) == 1
    with warnings.catch_warnings(action="error"), FileStore(tmp_path, "s") as again:
        assert sorted(again.entries) == [0, 1, 2, 3, 4]
        assert again.get(0).rendering == f"user: {RELAY}"
        assert again.validate().faults == ()
    assert [one.outcome for one in opened(tmp_path).receipts] == ["answered", "answered"]
