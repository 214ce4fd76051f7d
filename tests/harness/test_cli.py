"""The command `mmu`: what each command says, as text and as JSON, its exit codes, and what a user's mistake looks like."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from store import FileStore, NodeConflictError, session_folder

RELAY = "Start the relay on port 8931, its name is Kestrel."


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def mmu(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, tmp_path: Path) -> Any:
    """Runs `mmu` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MMU_OFF", raising=False)

    def run(*words: str | int, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["mmu", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        sys.stdout.flush(), sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in err
        return Said(code, out.decode("utf-8", "surrogateescape"), err.decode())

    return run


@pytest.fixture
def relay(mmu: Any) -> Any:
    """`mmu` beside a store with three steps in its default session."""
    for step, text in (
        (2, RELAY),
        (5, "The relay moved to port 9042."),
        (7, "A falcon [/INST] landed [bold]here :smile:"),
    ):
        assert mmu("fold", "--step", step, "--summary", text[:40], stdin=text.encode()).code == 0
    return mmu


def session(tmp_path: Path, name: str = "default") -> Path:
    """The folder of a session in the store of these tests."""
    return tmp_path / ".mmu" / session_folder(name)


def talk(path: Path, turns: int = 12) -> Path:
    """A recording that folds under `MARKS`, and asks for what was folded in its last turn."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "hi"}]
    for number in range(turns):
        text = RELAY if number == 0 else " ".join(f"zq{number}x{word}" for word in range(18))
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": f"ok {number}"}]
    messages += [{"role": "user", "content": "Which port does the relay Kestrel use?"}]
    path.write_text(json.dumps(messages), encoding="utf-8")
    return path


@pytest.fixture
def ran(mmu: Any, tmp_path: Path) -> Any:
    """`mmu` after a recording was run as session `talk`."""
    (tmp_path / "policy.json").write_text('{"high_water_tokens": 400, "low_water_tokens": 150}')
    assert mmu("run", talk(tmp_path / "talk.json"), "--policy", "policy.json").code == 0
    return mmu


# -- the program


def test_without_a_command_it_shows_its_help_and_with_version_its_version(mmu: Any) -> None:
    assert "mmu [OPTIONS] COMMAND" in mmu().out + mmu().err
    assert mmu("--version").out.startswith("prompt-mmu 0.")
    assert {"fold", "scan", "recall", "hydrate", "validate", "repair", "run", "report", "explain"} <= set(
        mmu("--help").out.split()
    )


# -- fold, scan, recall, hydrate


def test_fold_keeps_a_text_byte_for_byte_and_hydrate_raw_gives_it_back(mmu: Any, tmp_path: Path) -> None:
    data = "Grüße\r\n\ttab  \x00 end\n\n".encode()
    (tmp_path / "a.txt").write_bytes(data)
    said = mmu("fold", "a.txt", "--step", 3)
    assert said.out.startswith(f"step 3: {len(data)} bytes, ")
    assert mmu("hydrate", 3, "--raw").out.encode() == data
    assert mmu("hydrate", 3).out.startswith("Grüße")
    entry = mmu("fold", "--step", 4, "-", "--json", stdin=data).json()
    assert entry["step_id"] == 4
    assert mmu("hydrate", 4, "--json").json()["payload_sha256"] == entry["payload_sha256"]


def test_folding_the_same_again_is_no_matter_and_something_else_is_a_conflict(relay: Any) -> None:
    assert relay("fold", "--step", 2, "--summary", RELAY[:40], stdin=RELAY.encode()).code == 0
    said = relay("fold", "--step", 2, stdin=b"another text")
    assert (said.code, said.out) == (7, "")
    assert said.err.startswith("mmu: step 2: holds payload ")
    assert relay("hydrate", 2, "--raw").out == RELAY


def test_scan_shows_what_would_come_back_as_the_model_would_see_it(relay: Any) -> None:
    text = relay("scan", "Which port does the relay Kestrel use?").out
    assert text.startswith("<archived-steps ")
    assert RELAY in text
    found = relay("scan", "Which port does the relay Kestrel use?", "--json").json()
    assert [row["step_id"] for row in found["hydrated"]] == [2]
    assert found["block"] in text
    assert relay("scan", "unknown words").out.startswith("nothing archived matches")


def test_recall_lists_the_latest_state_first(relay: Any) -> None:
    found = relay("recall", "relay port", "--json").json()["candidates"]
    assert [(c["step_id"], c["status"], c["value"]) for c in found] == [
        (5, "latest_chronological", "9042"),
        (2, "historical", "8931"),
    ]
    lines = relay("recall", "relay port").out.splitlines()
    assert ["latest_chronological" in lines[1], "historical" in lines[2]] == [True, True]
    assert len(relay("recall", "relay port", "--limit", 1, "--json").json()["candidates"]) == 1
    assert relay("recall", "nothing").out.startswith("no archived step")


@pytest.mark.parametrize("command", [("recall", "falcon"), ("scan", "falcon"), ("hydrate", "7")])
def test_what_other_people_wrote_is_printed_as_it_is(relay: Any, command: tuple[str, ...]) -> None:
    said = relay(*command)
    assert said.code == 0
    assert "A falcon [/INST] landed [bold]here" in said.out
    assert command[0] == "recall" or ":smile:" in said.out


def test_hydrate_bounds_what_it_shows_and_says_so(mmu: Any) -> None:
    mmu("fold", "--step", 1, stdin=b"word " * 500)
    found = mmu("hydrate", 1, "--cap", 30, "--json").json()
    assert (found["tokens"] <= 30, found["whole_tokens"] >= 500, found["truncated"]) == (True, True, True)
    assert found["text"].endswith("tokens of step 1 are shown]")


# -- status, validate, repair


def test_status_says_what_a_session_holds(ran: Any) -> None:
    found = ran("status", "--session", "talk", "--json").json()
    assert (found["steps"], found["turn"], found["faults"]) == (27, 14, [])
    assert found["folded"] > 5
    text = ran("status", "--session", "talk").out
    assert "baseline tokens" in text
    assert "none" in text


def test_validate_and_repair_name_the_fault_and_change_nothing_unasked(relay: Any, tmp_path: Path) -> None:
    assert relay("validate").out.startswith("3 steps checked, 0 faults; head 3:")
    assert relay("repair").out == "nothing to repair\n"
    file = session(tmp_path) / "cold_nodes" / "step_000002.json"
    good = file.read_bytes()
    file.write_bytes(good.replace(b"8931", b"6666"))
    said = relay("validate")
    assert said.code == 1
    assert said.out.startswith("IntegrityCheckError: step 2: ")
    found = relay("validate", "--json").json()
    assert (found["checked"], [row["step_id"] for row in found["faults"]]) == (3, [2])
    assert relay("hydrate", 2).code == 4
    assert relay("repair").out.endswith("this is the plan; --apply carries it out\n")
    assert relay("validate").code == 1
    done = relay("repair", "--apply", "--json").json()
    assert done["applied"] is True
    assert len(done["actions"]) >= 1
    assert relay("validate").code == 0
    assert file.read_bytes() == good


# -- run, report, explain, conformance


def test_run_drives_a_recording_and_each_run_is_a_session_of_its_own(ran: Any, tmp_path: Path) -> None:
    again = ran("run", "talk.json", "--policy", "policy.json", "--json").json()
    assert again["session"] == "talk-2"
    assert again["totals"]["calls"] == len(again["receipts"]) == 14
    assert [h["step_id"] for h in again["receipts"][-1]["hydrated"]] == [2]
    text = ran("run", "talk.json", "--policy", "policy.json", "--session", "third").out
    assert "session third" in text
    assert "14 turns, 14 calls" in text
    seen = ran("run", "talk.json", "--policy", "policy.json", "--observe", "--json").json()
    assert {receipt["mode"] for receipt in seen["receipts"]} == {"observe"}


def test_run_takes_several_conversations_from_json_lines(mmu: Any, tmp_path: Path) -> None:
    line = '{"messages": [{"role": "user", "content": "Hello."}]}\n'
    (tmp_path / "two.jsonl").write_text(line * 2)
    assert [s["session"] for s in mmu("run", "two.jsonl", "--json").json()["sessions"]] == ["two-1", "two-2"]


def test_report_and_explain_tell_what_a_turn_cost_and_why(ran: Any) -> None:
    assert "kestrel, port, relay" in ran("report", "talk").out
    report = ran("report", "talk", "--json").json()
    assert (len(report["turns"]), report["faults"]) == (14, [])
    text = ran("explain", "talk", 14).out
    assert "S = last S + new" in text
    assert "in the prompt: step 2 (" in text
    assert "evicted: step 2" in text
    assert ran("explain", "talk", 14, "--json").json()["dispatches"][0]["turn"] == 14


def test_report_shows_a_ledger_that_was_edited(ran: Any, tmp_path: Path) -> None:
    ledger = session(tmp_path, "talk") / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines()
    ledger.write_bytes(b"\n".join([lines[0].replace(b'"sent":', b'"sent":1'), *lines[1:]]) + b"\n")
    assert "ledger line 1: changed or unreadable" in ran("report", "talk").out
    assert ran("report", "talk", "--json").json()["faults"][0]["line"] == 1
    assert "LedgerFault: ledger.jsonl line 1" in ran("validate", "--session", "talk").out


def test_an_anchor_shows_that_the_folder_was_put_back(
    relay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = tmp_path / "anchor.jsonl"
    monkeypatch.setenv("MMU_ANCHOR", str(anchor))
    shutil.copytree(session(tmp_path), tmp_path / "older")
    assert relay("fold", "--step", 20, stdin=b"newer").code == 0
    head = relay("status", "--json").json()["head"]
    assert (relay("validate", "--json").json()["notes"], head in anchor.read_text()) == ([], True)
    shutil.rmtree(session(tmp_path))
    shutil.copytree(tmp_path / "older", session(tmp_path))
    said = relay("validate", "--anchor", anchor)
    assert said.code == 1
    assert "an older state was put back" in said.out
    monkeypatch.delenv("MMU_ANCHOR")
    said = relay("validate")
    assert (said.code, "without an anchor nobody can tell" in said.out) == (0, True)


def test_forget_lists_first_and_erases_when_told_to(relay: Any, tmp_path: Path) -> None:
    said = relay("forget", "--matching", "8931")
    assert (said.code, "1 steps would be forgotten" in said.out, relay("hydrate", 2).code) == (0, True, 0)
    found = relay("forget", "--matching", "8931", "--apply", "--json").json()
    assert [row["step_id"] for row in found["steps"]] == [2]
    assert any("provider" in line for line in found["out_of_reach"])
    assert relay("hydrate", 2).code == 3
    assert relay("validate", "--json").json()["forgotten"] == [2]
    assert relay("forget").code == 2
    assert (relay("forget", 99, "--apply").code, relay("forget", "--matching", "nowhere", "--json").code) == (1, 1)
    assert relay("forget", "--everything", "--apply").code == 0
    assert relay("status", "--json").json()["steps"] == 0
    assert not [path for path in session(tmp_path).rglob("*") if path.is_file() and b"falcon" in path.read_bytes()]


def test_reindex_gives_steps_the_terms_of_today_and_keeps_their_bytes(
    relay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = relay("hydrate", 2, "--json").json()
    assert relay("reindex", "--json").json()["changed"] == []
    monkeypatch.setattr("mmu.terms.fold_case", lambda text: text.upper())
    assert relay("reindex", "--json").json()["changed"] == [2, 5, 7]
    after = relay("hydrate", 2, "--json").json()
    assert after["payload_sha256"] == before["payload_sha256"]
    assert after["projection_sha256"] != before["projection_sha256"]
    assert relay("validate").code == 0
    assert relay("status", "--json").json()["head"].startswith("6:")


def test_conformance_shows_thirteen_requirements(mmu: Any) -> None:
    said = mmu("conformance", "--json")
    assert said.code == 0
    assert [row["status"] for row in said.json()["requirements"]] == ["pass"] * 13


# -- mistakes


def foreign(tmp_path: Path) -> None:
    """A folder with other people's files where a session would lie."""
    session(tmp_path).mkdir(parents=True)
    (session(tmp_path) / "thesis.tex").write_text("mine")


def newer(tmp_path: Path) -> None:
    """A session whose view was written by a program of the future."""
    FileStore(tmp_path / ".mmu", "default").write_document("view.json", b'{"version": 99}')


def empty(tmp_path: Path) -> None:
    """A session without anything in it."""
    FileStore(tmp_path / ".mmu", "default").close()


def files(tmp_path: Path) -> None:
    """Files that are no recordings and no policies."""
    empty(tmp_path)
    (tmp_path / "bad.json").write_text('{"messages": [')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "field.json").write_text('{"high_water_marks": 3}')
    (tmp_path / "range.json").write_text('{"low_water_tokens": 99999}')
    (tmp_path / "type.json").write_text('{"low_water_tokens": "many"}')
    (tmp_path / "latin.txt").write_bytes(b"gr\xfc\xdfe")
    (tmp_path / ".mmu" / "plain").write_text("a file")


MISTAKES: list[tuple[Any, tuple[str, ...], int, str]] = [
    (None, ("nonsense",), 2, "No such command"),
    (None, ("fold",), 2, "--step"),
    (None, ("hydrate", "two"), 2, "Invalid value for 'step'"),
    (None, ("hydrate", "2", "--cap", "0"), 2, "Invalid value for '--cap'"),
    (None, ("status",), 8, "no session 'default' is stored here"),
    (None, ("recall", "x", "--session", "[/b] other"), 8, "no session '[/b] other' is stored here"),
    (None, ("report", "none"), 8, "no session 'none' is stored here"),
    (empty, ("report", "default"), 12, "session 'default': no call has been booked yet"),
    (empty, ("hydrate", "2"), 3, "step 2: not archived in session 'default'"),
    (empty, ("fold", "--step", "-1"), 2, "step_id: -1 is not an integer from 0"),
    (empty, ("fold", "--step", "9999999999"), 2, "step_id: 9999999999 is not an integer from 0"),
    (foreign, ("status",), 8, "not a prompt-mmu session"),
    (foreign, ("fold", "--step", "1"), 8, "not a prompt-mmu session"),
    (newer, ("status",), 8, "view.json: version 99, this program reads 1"),
    (files, ("fold", "none.txt", "--step", "1"), 12, "none.txt: No such file"),
    (files, ("fold", "latin.txt", "--step", "1"), 12, "latin.txt: not UTF-8 text"),
    (files, ("run", "none.json"), 12, "none.json: No such file"),
    (files, ("run", "."), 12, "directory"),
    (files, ("run", "bad.json"), 12, "bad.json: no JSON at line 1"),
    (files, ("run", "list.json"), 12, "list: neither chat messages nor exchanges"),
    (files, ("scan", "x", "--policy", "none.json"), 12, "none.json: No such file"),
    (files, ("scan", "x", "--policy", "bad.json"), 12, "bad.json: no JSON"),
    (files, ("scan", "x", "--policy", "list.json"), 12, "list.json: an object with the policy's fields"),
    (files, ("scan", "x", "--policy", "field.json"), 2, "high_water_marks: "),
    (files, ("scan", "x", "--policy", "range.json"), 2, "low_water_tokens: 99999 is above high_water_tokens 45000"),
    (files, ("scan", "x", "--policy", "type.json"), 2, "low_water_tokens: "),
    (files, ("fold", "--step", "1", "--store", "bad.json"), 8, "this is a file, a store folder was expected"),
]


@pytest.mark.parametrize(
    ("prepare", "words", "code", "reason"), MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_a_mistake_is_one_clear_line_and_a_code(  # noqa: PLR0917
    mmu: Any, tmp_path: Path, prepare: Any, words: tuple[str, ...], code: int, reason: str
) -> None:
    if prepare:
        prepare(tmp_path)
    said = mmu(*words)
    assert (said.code, said.out) == (code, "")
    assert reason in " ".join(said.err.replace("│", " ").split())
    if code != 2 or "Usage" not in said.err:
        assert said.err.startswith("mmu: ")
        assert said.err.count("\n") == 1
        with_json = mmu(*words, "--json")
        assert with_json.code == code
        assert reason in with_json.json()["error"]["message"]
    if prepare is foreign:
        assert (session(tmp_path) / "thesis.tex").read_text() == "mine"


DAMAGE = {
    "changed": (4, lambda file: file.write_bytes(file.read_bytes().replace(b"8931", b"6666"))),
    "a link": (4, lambda file: (file.rename(file.with_name("x")), file.symlink_to("x"))),
    "missing": (6, lambda file: file.unlink()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_kind_of_damage_has_its_exit_code(relay: Any, tmp_path: Path, damage: str) -> None:
    code, harm = DAMAGE[damage]
    harm(session(tmp_path) / "cold_nodes" / "step_000002.json")
    assert relay("hydrate", 2).code == code
    assert relay("validate").code == 1
    assert relay("hydrate", 5).code == 0


def test_a_node_without_entry_has_its_exit_code(relay: Any, tmp_path: Path) -> None:
    folder = session(tmp_path) / "cold_nodes"
    (folder / "step_000009.json").write_bytes((folder / "step_000002.json").read_bytes())
    assert relay("hydrate", 9).code == 5
    assert relay("fold", "--step", 9, stdin=b"x").code == 5


def test_the_environment_names_store_and_session(relay: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MMU_STORE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MMU_SESSION", "s")
    assert relay("status").code == 8
    assert relay("fold", "--step", 1, stdin=b"x").code == 0
    assert relay("status", "--json").json()["session"] == "s"


def test_every_error_of_ours_has_a_code_and_the_nearest_class_decides() -> None:
    from harness.cli.app import exit_code
    from harness.errors import DispatchError, SessionFileError
    from mmu.errors import PolicyError
    from store import PathContainmentError

    errors = [
        (NodeConflictError(1, "a", "b"), 7),
        (PathContainmentError(1, "a", "b"), 4),
        (PolicyError("x"), 2),
        (SessionFileError("x"), 12),
        (DispatchError("x"), 13),
    ]
    assert [exit_code(error) for error, _ in errors] == [code for _, code in errors]


# -- what only a process of its own shows


def process(*words: str, cwd: Path, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """`mmu` as a process."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", *words]
    return subprocess.Popen(command, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE)


def test_a_reader_that_has_left_is_no_error_to_speak_of(relay: Any, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    commands = (("hydrate", "2", "--raw"), ("hydrate", "2"), ("status", "--json"), ("recall", "relay"))
    running = [process(*words, cwd=tmp_path, stdout=writing) for words in commands]
    os.close(writing)
    for one, words in zip(running, commands, strict=True):
        assert one.communicate(timeout=60)[1] == b"", words
        assert one.returncode in (1, 141), words


def test_names_that_are_no_utf8_are_shown_and_do_not_break_it(relay: Any, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    commands = {("recall", name): 0, ("status", "--session", name): 8, ("run", name): 12}
    running = {words: process(*words, "--json", cwd=tmp_path) for words in commands}
    for words, code in commands.items():
        out, err = running[words].communicate(timeout=60)
        assert b"Traceback" not in err
        assert (running[words].returncode, bool(json.loads(out))) == (code, True)


def test_fold_takes_a_file_of_rows_and_names_a_bad_one(mmu: Any, tmp_path: Path) -> None:
    rows = [{"step": number, "text": f"relay {number} of many", "summary": f"row {number}"} for number in range(1_200)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert mmu("fold", "rows.jsonl", "--rows", "--json").json()["steps"] == 1_200
    assert mmu("fold", "rows.jsonl", "--rows").out.startswith("1,200 steps: ")
    assert mmu("status", "--json").json()["steps"] == 1_200
    assert mmu("recall", "relay 1199", "--json").json()["candidates"][0]["step_id"] == 1_199
    (tmp_path / "bad.jsonl").write_text('{"step": 2000, "text": "fine"}\n{"step": "x", "text": "y"}')
    said = mmu("fold", "bad.jsonl", "--rows")
    assert (said.code, "line 2" in said.err, mmu("hydrate", 2000).code) == (12, True, 3)
    assert mmu("fold", "rows.jsonl").code == mmu("fold", "rows.jsonl", "--rows", "--step", 3).code == 2


def test_fold_redacts_unless_told_not_to(mmu: Any, tmp_path: Path) -> None:
    secret = "ghp" + "_" + "Ab12" * 9
    said = mmu("fold", "--step", 1, stdin=f"the token is {secret}".encode())
    assert "1 github token redacted" in said.err
    assert mmu("hydrate", 1).out == "the token is [redacted: github token]\n"
    assert mmu("fold", "--step", 2, "--no-redact", stdin=secret.encode()).err == ""
    assert mmu("hydrate", 2, "--raw").out == secret
    (tmp_path / "talk.jsonl").write_text(json.dumps({"role": "user", "content": f"use {secret}"}) + "\nplain " + secret)
    found = mmu("redact", "talk.jsonl", "--json")
    assert (found.code, [(row["line"], row["kind"]) for row in found.json()["findings"]]) == (
        1,
        [(1, "github token"), (2, "github token")],
    )
    assert secret not in mmu("redact", "talk.jsonl").out


def test_a_damaged_index_is_noted_and_derived_anew(mmu: Any, tmp_path: Path) -> None:
    rows = [{"step": number, "text": f"relay {number} of many"} for number in range(1_200)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert mmu("fold", "rows.jsonl", "--rows").code == 0
    (file,) = (session(tmp_path) / "derived").iterdir()
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    said = mmu("validate", "--json")
    assert (said.code, said.json()["notes"][-1]) == (0, "the index was damaged, and was derived anew")
    assert len(mmu("validate", "--json").json()["notes"]) == 1
    assert mmu("index", "rebuild", "--json").json() == {"steps": 1_200}
    assert mmu("recall", "relay 700", "--json").json()["candidates"][0]["step_id"] == 700
