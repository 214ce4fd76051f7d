"""What the file store keeps through kills, full disks, strange folders, other processes and edited bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import (
    BrokenReferenceError,
    ColdNode,
    FileStore,
    IntegrityCheckError,
    InvalidNodeError,
    MemoryStore,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    StoreFormatError,
    StoreLockedError,
    StoreWriteError,
    fixed_chance,
    session_folder,
)
from store.log import Record, frame, records

Make = Callable[..., ColdNode]
Snapshot = Callable[[Path], dict[str, bytes | str | None]]
Refuse = Callable[..., contextlib.AbstractContextManager[list[str]]]
Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / ".mmu"


@pytest.fixture
def cold(root: Path, session: str) -> FileStore:
    return FileStore(root, session, lock_seconds=0.05)


@pytest.fixture
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it handed to the system, so tests of kills need not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def reopened(store: FileStore) -> FileStore:
    return FileStore(store.folder.parent, store.session, lock_seconds=0.05)


def log_of(store: FileStore) -> Path:
    return store.folder / "log.0"


def node_of(store: FileStore, step_id: int) -> Path:
    return store.folder / f"cold_nodes/step_{step_id:06d}.json"


def quarantined(store: FileStore) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store.folder / "quarantine").glob("*"))]


# -- a log that was cut


@pytest.mark.usefixtures("no_flush")
@pytest.mark.parametrize("first", range(4))  # every fourth position each, so that they run side by side
def test_a_log_cut_anywhere_in_its_last_record_loses_that_record_and_nothing_else(
    cold: FileStore, make: Make, first: int
) -> None:
    cold.archive([make(0), make(1)])
    cold.close()
    start = log_of(cold).stat().st_size
    small = make(2, b"x", identifiers=(), files=(), commands=(), errors=(), match_key="", folding_policy_hash="")
    cold.archive([small])
    whole = log_of(cold).read_bytes()
    cuts = range(start + first, len(whole) + 1, 4)
    for cut in cuts:
        for step in (2, 3):  # the log comes first: there is no file of a step whose record is cut
            node_of(cold, step).unlink(missing_ok=True)
        log_of(cold).write_bytes(whole[:cut])
        opened = reopened(cold)
        assert opened.faults == ()
        kept = {0, 1, 2} if cut == len(whole) else {0, 1}
        assert set(opened.entries) == kept
        assert [opened.get(step) for step in sorted(kept)] == [make(0), make(1), small][: len(kept)]
        assert opened.recovery.torn_bytes == (0 if cut == len(whole) else cut - start)
        opened.archive([make(3)])
        again = reopened(cold)
        assert again.get(3) == make(3)
        assert again.faults == ()
        assert set(again.entries) == {*kept, 3}
    assert all("as HEAD says" in str(fault) for fault in again.validate().faults), "an acknowledged step was cut off"
    assert set(quarantined(cold)) == {whole[start:cut] for cut in cuts if start < cut < len(whole)}


@pytest.mark.usefixtures("no_flush")
def test_torn_bytes_are_kept_also_when_opening_itself_writes_to_the_log(cold: FileStore, make: Make) -> None:
    cold.archive([make(0)])  # acknowledged and not marked filed, so that the next opening marks it
    with log_of(cold).open("ab") as log:
        log.write(b"torn")
    again = reopened(cold)
    assert again.recovery.torn_bytes == 4
    assert quarantined(again) == [b"torn"]
    assert again.get(0) == make(0)


@pytest.mark.usefixtures("no_flush")
def test_nothing_remains_in_the_log_of_a_torn_write_longer_than_the_next_record(cold: FileStore, make: Make) -> None:
    cold.archive([make(0)])
    cold.close()
    with log_of(cold).open("ab") as log:
        log.write(b"torn " * 2_000)
    cold.archive([make(1)])
    again = reopened(cold)
    assert again.recovery.torn_bytes == 0
    assert [again.get(step) for step in (0, 1)] == [make(0), make(1)]
    assert quarantined(again) == [b"torn " * 2_000]


@pytest.mark.usefixtures("no_flush")
def test_two_torn_writes_at_one_place_are_both_kept(cold: FileStore, make: Make, refuse: Refuse) -> None:
    cold.archive([make(0)])
    cold.close()
    for torn in (b"first", b"second"):
        with log_of(cold).open("ab") as log:
            log.write(torn)
        with refuse("pwrite", errno.ENOSPC, log_of(cold)), pytest.raises(StoreWriteError):
            reopened(cold).archive([make(1)])
    assert set(quarantined(cold)) == {b"first", b"second"}


@pytest.mark.usefixtures("no_flush")
def test_a_session_whose_making_was_cut_anywhere_opens(cold: FileStore, make: Make) -> None:
    head = log_of(cold).read_bytes()
    for cut in range(len(head) + 1):
        log_of(cold).write_bytes(head[:cut])
        opened = reopened(cold)
        assert (dict(opened.entries), opened.faults) == ({}, ())
        assert log_of(cold).read_bytes() == head
    opened.archive([make(0)])
    assert reopened(cold).get(0) == make(0)


# -- a log that was damaged in the middle


def three_steps(store: FileStore, make: Make) -> list[int]:
    """Archive steps 0, 1, 2 and give the ends of the records in the log, that of the head first."""
    ends = [log_of(store).stat().st_size]
    for step in range(3):
        store.archive([make(step)])
        ends.append(log_of(store).stat().st_size)
    store.close()
    return ends


@pytest.mark.parametrize("junk", [bytes(500), b"garbage\n", b"\n\n", b"{}\n", b"\xff\xfe\xe4\xb8", b"00000000 2 {}\n"])
def test_junk_between_two_records_is_a_fault_and_costs_no_step(cold: FileStore, make: Make, junk: bytes) -> None:
    ends = three_steps(cold, make)
    log = log_of(cold).read_bytes()
    log_of(cold).write_bytes(log[: ends[2]] + junk + log[ends[2] :])
    opened = reopened(cold)
    (fault,) = opened.faults
    assert isinstance(fault, IntegrityCheckError)
    assert f"log.0 bytes {ends[2]} to {ends[2] + len(junk)}" in str(fault)
    assert [opened.get(step) for step in range(3)] == [make(step) for step in range(3)]
    assert [str(fault) for fault in opened.validate().faults] == [str(fault)]
    opened.archive([make(3)])
    assert reopened(cold).get(3) == make(3)


def test_nuls_over_a_part_of_a_record_cost_that_step_alone(cold: FileStore, make: Make) -> None:
    ends = three_steps(cold, make)
    log = bytearray(log_of(cold).read_bytes())
    log[ends[1] + 40 : ends[1] + 140] = bytes(100)
    log_of(cold).write_bytes(log)
    opened = reopened(cold)
    assert [type(fault) for fault in opened.faults] == [IntegrityCheckError, OrphanedNodeError]
    assert [opened.get(step) for step in (0, 2)] == [make(0), make(2)]
    with pytest.raises(OrphanedNodeError):  # its file is there, and nothing vouches for it
        opened.get(1)


def test_the_beginning_of_a_record_followed_by_the_whole_record_counts_once(cold: FileStore, make: Make) -> None:
    ends = three_steps(cold, make)
    log = log_of(cold).read_bytes()
    record = log[ends[1] : ends[2]]
    for length in (1, 7, 9, 12, 30, len(record) - 1):
        log_of(cold).write_bytes(log[: ends[1]] + record[:length] + log[ends[1] :])
        opened = reopened(cold)
        assert set(opened.entries) == {0, 1, 2}
        assert len(opened.faults) == 1
        assert opened.get(1) == make(1)


def test_a_torn_head_that_reads_on_into_the_next_head_hides_nothing() -> None:
    body = next(
        body for n in range(10_000) if frame(body := {"n": n})[:8].isdigit()
    )  # a checksum that passes for a length
    (damage, record) = records(b"deadbeef " + frame(body))
    assert isinstance(record, Record)
    assert (record.body, record.start, damage.stop) == (body, 9, 9)


@pytest.mark.parametrize(
    "body",
    [
        {"record": "archive"},
        {"record": "archive", "entry": {"step_id": 5}, "node": {}},
        {"record": "archive", "entry": [], "node": {}},
        {"record": "filed"},
        {"record": "dropped", "steps": 3},
        {"record": "dropped", "steps": [[]]},
        {},
    ],
)
def test_a_record_of_another_shape_is_a_fault_and_no_crash(cold: FileStore, make: Make, body: dict[str, Any]) -> None:
    three_steps(cold, make)
    with log_of(cold).open("ab") as log:
        log.write(frame(body))
    opened = reopened(cold)
    assert [type(fault) for fault in opened.faults] == [IntegrityCheckError]
    assert [opened.get(step) for step in range(3)] == [make(step) for step in range(3)]


@pytest.mark.parametrize("step_id", [-1, "1", None, True, 1.5, 10**9])
def test_an_entry_whose_step_id_is_none_is_a_fault_and_no_crash(cold: FileStore, make: Make, step_id: Any) -> None:
    (entry,) = cold.archive([make(1)])
    cold.close()
    body = {"record": "archive", "entry": {**entry.document(), "step_id": step_id}, "node": make(1).document()}
    with log_of(cold).open("ab") as log:
        log.write(frame(body))
    opened = reopened(cold)
    assert [type(fault) for fault in opened.faults] == [IntegrityCheckError]
    assert opened.get(1) == make(1)


def test_a_line_with_a_right_checksum_that_is_no_json_is_a_fault_and_no_crash(cold: FileStore, make: Make) -> None:
    three_steps(cold, make)
    with log_of(cold).open("ab") as log:
        log.write(b"%08x 3 abc\n" % 0x352441C2)  # CRC-32 of "abc"
        log.write(frame({"record": "exported", "steps": 3, "sha256": "", "before": ""}))
    assert [type(fault) for fault in reopened(cold).faults] == [IntegrityCheckError]


# -- a process that is killed

KILLED_BEFORE_FILES = """
import signal, sys
from pathlib import Path
from store import ColdNode, FileStore, layout
root, session, share = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def create(path, data):
    if share:
        path.write_bytes(data[: int(len(data) * share)])
    print("logged", flush=True)
    signal.pause()
layout.create = create
store = FileStore(root, session)
store.archive([ColdNode.build(session=session, step_id=9, payload_kind="text", payload=b"nine", rendering="nine")])
"""


@pytest.mark.parametrize(("share", "redone"), [(0, (9,)), (0.5, ())], ids=["no node file", "half a node file"])
def test_a_step_acknowledged_by_a_process_that_was_killed_is_completed_on_opening(
    cold: FileStore, make: Make, child: Child, share: float, redone: tuple[int, ...]
) -> None:
    cold.archive([make(1)])
    cold.close()
    process = child(KILLED_BEFORE_FILES, cold.folder.parent, cold.session, share)
    assert process.stdout is not None
    assert process.stdout.readline() == "logged\n"
    process.kill()
    process.wait()
    opened = reopened(cold)
    assert opened.recovery.redone == redone
    assert opened.faults == ()
    assert opened.get(9).payload == b"nine"
    assert node_of(cold, 9).read_bytes() == opened.get(9).to_bytes()
    assert opened.validate().faults == ()
    assert reopened(cold).recovery.redone == ()
    assert list(cold.refresh()) == [opened.entries[9]]


def test_a_step_filed_and_then_missing_is_a_broken_reference_and_is_not_made_up(cold: FileStore, make: Make) -> None:
    three_steps(cold, make)
    node_of(cold, 1).unlink()
    opened = reopened(cold)
    assert opened.recovery.redone == ()
    with pytest.raises(BrokenReferenceError, match=r"step_000001\.json"):
        opened.get(1)
    assert not node_of(cold, 1).exists()
    assert [type(fault) for fault in opened.validate().faults] == [BrokenReferenceError]


def test_a_file_without_entry_is_a_fault_from_opening_on(cold: FileStore, make: Make) -> None:
    three_steps(cold, make)
    node_of(cold, 42).write_bytes(make(42).to_bytes())
    (cold.folder / "cold_nodes/notes.txt").write_text("mine")
    (cold.folder / "cold_nodes/step_0000002.json").write_bytes(make(2).to_bytes())  # one zero too many
    opened = reopened(cold)
    assert [(type(fault), fault.step_id) for fault in opened.faults] == [
        (OrphanedNodeError, None),
        (OrphanedNodeError, None),
        (OrphanedNodeError, 42),
    ]
    assert [str(fault) for fault in opened.validate().faults] == [str(fault) for fault in opened.faults]
    assert opened.get(2) == make(2)


# -- a disk that refuses


@pytest.mark.parametrize("refusal", [(c, n) for c in ("pwrite", "fsync") for n in (errno.ENOSPC, errno.EIO)], ids=str)
def test_a_refused_log_write_keeps_nothing_and_the_store_goes_on(
    cold: FileStore, make: Make, snapshot: Snapshot, refuse: Refuse, refusal: tuple[str, int]
) -> None:
    call, number = refusal
    cold.archive([make(0)])
    before = snapshot(cold.folder)
    with refuse(call, number, log_of(cold)) as refused:
        with pytest.raises(StoreWriteError, match=r"log\.0") as caught:
            cold.archive([make(1), make(2)])
        assert refused
    assert caught.value.errno == number
    assert set(cold.entries) == {0}
    assert snapshot(cold.folder) == before
    with pytest.raises(NodeNotFoundError):
        cold.get(1)
    cold.archive([make(1)])
    assert [reopened(cold).get(step) for step in (0, 1)] == [make(0), make(1)]
    assert quarantined(cold) == []


@contextlib.contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """The system itself writes a part and refuses the rest, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 300])
def test_a_log_that_may_not_grow_is_rolled_back_to_its_last_record(cold: FileStore, make: Make, room: int) -> None:
    cold.archive([make(0)])
    before = log_of(cold).read_bytes()
    with files_no_longer_than(len(before) + room), pytest.raises(StoreWriteError, match=r"log\.0"):
        cold.archive([make(1)])
    assert log_of(cold).read_bytes() == before
    cold.archive([make(1)])
    assert reopened(cold).get(1) == make(1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_step_whose_file_is_refused_stays_acknowledged_and_is_filed_later(
    cold: FileStore, make: Make, refuse: Refuse, number: int
) -> None:
    with refuse("open", number, cold.folder / "cold_nodes") as refused:
        cold.archive([make(1)])  # the log holds it
        assert refused
        assert cold.get(1) == make(1)
        with pytest.raises(StoreWriteError, match="cold_nodes"):
            cold.close()
    assert not node_of(cold, 1).exists()
    opened = reopened(cold)
    assert opened.recovery.redone == (1,)
    assert opened.get(1) == make(1)
    assert node_of(cold, 1).read_bytes() == make(1).to_bytes()


def test_a_refused_flush_of_node_files_costs_no_acknowledged_step(cold: FileStore, make: Make, refuse: Refuse) -> None:
    steps = [make(step, b"%d" % step) for step in range(70)]  # enough for archive itself to file them
    with refuse("fsync", errno.EIO, cold.folder / "cold_nodes") as refused:
        cold.archive(steps)
        assert refused
        with pytest.raises(StoreWriteError, match="cold_nodes"):
            cold.close()
    assert [cold.get(step) for step in range(70)] == steps
    cold.close()
    assert [reopened(cold).get(step) for step in range(70)] == steps


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_refused_document_leaves_the_old_one(
    cold: FileStore, refuse: Refuse, snapshot: Snapshot, number: int
) -> None:
    cold.write_document("policy.json", b"old")
    cold.append_document("ledger.jsonl", lambda last: b"first")
    before = snapshot(cold.folder)
    with refuse("open", number, cold.folder), pytest.raises(StoreWriteError, match=r"policy\.json"):
        cold.write_document("policy.json", b"new")
    ledger = cold.folder / "ledger.jsonl"
    with refuse("pwrite", number, ledger), pytest.raises(StoreWriteError, match=r"ledger\.jsonl"):
        cold.append_document("ledger.jsonl", lambda last: b"second")
    assert snapshot(cold.folder) == before
    cold.write_document("policy.json", b"new")
    cold.append_document("ledger.jsonl", lambda last: last + b" and second")
    assert cold.read_document("policy.json") == b"new"
    assert cold.read_document("ledger.jsonl") == b"first\nfirst and second\n"


def test_a_large_document_that_does_not_fit_leaves_the_old_one_and_no_debris(
    cold: FileStore, snapshot: Snapshot
) -> None:
    cold.write_document("policy.json", b"old")
    before = snapshot(cold.folder)
    with files_no_longer_than(10_000), pytest.raises(StoreWriteError):
        cold.write_document("policy.json", b"x" * 20_000)
    assert snapshot(cold.folder) == before


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After the call every change of the file system fails as on one mounted read-only (mode bits do not bind root)."""

    def refuse_all(number: int = errno.EROFS) -> None:
        genuine = os.open

        def opening(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(number, os.strerror(number), str(path))
            return genuine(path, flags, *rest, **options)

        def changing(path: Any, *rest: Any, **options: Any) -> None:
            raise OSError(number, os.strerror(number), str(path))

        monkeypatch.setattr(os, "open", opening)
        for call in ("mkdir", "unlink", "rename", "replace"):
            monkeypatch.setattr(os, call, changing)

    return refuse_all


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES], ids=["EROFS", "EACCES"])
def test_a_store_that_cannot_be_written_can_be_read(
    cold: FileStore, make: Make, read_only: Callable[[int], None], snapshot: Snapshot, number: int
) -> None:
    cold.archive([make(0)])
    cold.close()
    cold.write_document("policy.json", b"{}")
    cold.archive([make(1)])
    node_of(cold, 1).unlink()  # acknowledged and not filed
    with log_of(cold).open("ab") as log:
        log.write(b"torn")
    before = snapshot(cold.folder)
    read_only(number)
    with FileStore(cold.folder.parent, cold.session, create=False) as reader:
        assert [reader.get(step) for step in (0, 1)] == [make(0), make(1)]
        assert reader.read_document("policy.json") == b"{}"
        assert reader.faults == reader.validate().faults == ()
        for attempt in (
            lambda: reader.archive([make(2)]),
            lambda: reader.write_document("policy.json", b"x"),
            lambda: reader.append_document("ledger.jsonl", lambda last: b"x"),
            reader.export_index,
        ):
            with pytest.raises(StoreWriteError) as caught:
                attempt()
            assert caught.value.errno == number
    assert snapshot(cold.folder) == before


# -- folders that are not ours


def holding(name: str, data: bytes) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / name).write_bytes(data)

    return prepare


def a_file_in_its_place(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_bytes(b"a file")


def a_file_in_place_of_the_root(folder: Path) -> None:
    folder.parent.write_bytes(b"a file")


def nodes_without_a_log(folder: Path) -> None:
    (folder / "cold_nodes").mkdir(parents=True)
    (folder / "cold_nodes/step_000001.json").write_bytes(b"{}")


def head(**changes: Any) -> bytes:
    body = {"record": "head", "format": "mmu-log", "version": 1, "generation": 0, "session": "refactor-42"}
    return frame({**body, **changes})


STRANGERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "another program's folder": (holding("data.db", b"SQLite"), "its log is missing"),
    "nodes without a log": (nodes_without_a_log, "its log is missing"),
    "a file in place of the folder": (a_file_in_its_place, "this is a file"),
    "a file in place of the root": (a_file_in_place_of_the_root, "this is a file"),
    "the log of another session": (holding("log.0", head(session="other")), "holds session 'other'"),
    "the log of a newer version": (holding("log.0", head(version=2) + frame({"record": "new"})), "update prompt-mmu"),
    "the log of another program": (holding("log.0", head(format="theirs")), "'theirs' is not ours"),
    "a log of text": (holding("log.0", b"12:00 started\n12:01 stopped\n"), "no whole record"),
    "a log of NULs": (holding("log.0", bytes(4096)), "no whole record"),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("create", [True, False])
def test_a_folder_that_is_not_ours_is_refused_and_not_touched(
    root: Path, session: str, snapshot: Snapshot, stranger: tuple[Callable[[Path], None], str], create: bool
) -> None:
    prepare, reason = stranger
    prepare(root / session_folder(session))
    before = snapshot(root.parent)
    with pytest.raises(StoreFormatError) as caught:
        FileStore(root, session, create=create)
    assert reason in str(caught.value) or (not create and "no session" in str(caught.value))
    assert str(root) in str(caught.value)
    assert snapshot(root.parent) == before


def test_a_missing_session_is_not_made_where_that_was_not_asked_for(root: Path, snapshot: Snapshot) -> None:
    with pytest.raises(StoreFormatError, match="no session 'typo'"):
        FileStore(root, "typo", create=False)
    assert snapshot(root.parent) == {}


# -- links


def test_a_link_in_place_of_a_node_is_not_followed_even_to_the_right_bytes(cold: FileStore, make: Make) -> None:
    three_steps(cold, make)
    outside = cold.folder.parent / "elsewhere.json"
    node_of(cold, 1).rename(outside)
    node_of(cold, 1).symlink_to(outside)
    with pytest.raises(PathContainmentError, match="step 1"):
        reopened(cold).get(1)
    assert isinstance(reopened(cold).validate().faults[0], IntegrityCheckError)


def test_a_link_in_place_of_the_node_folder_is_neither_read_nor_written_through(
    cold: FileStore, make: Make, snapshot: Snapshot
) -> None:
    three_steps(cold, make)
    outside = cold.folder.parent / "outside"
    (cold.folder / "cold_nodes").rename(outside)
    (cold.folder / "cold_nodes").symlink_to(outside)
    before = snapshot(outside)
    opened = reopened(cold)
    with pytest.raises(PathContainmentError):
        opened.get(1)
    opened.archive([make(7)])
    with pytest.raises(StoreWriteError, match="a link stands in place"):
        opened.close()
    assert snapshot(outside) == before
    (cold.folder / "cold_nodes").unlink()
    outside.rename(cold.folder / "cold_nodes")
    assert [reopened(cold).get(step) for step in (0, 1, 2, 7)] == [make(step) for step in (0, 1, 2, 7)]


@pytest.mark.parametrize("name", ["policy.json", "log.0", "lock"])
def test_a_link_in_place_of_a_document_the_log_or_the_lock_is_not_written_through(
    cold: FileStore, make: Make, name: str
) -> None:
    outside = cold.folder.parent / "outside"
    cold.write_document("policy.json", b"{}")
    (cold.folder / name).rename(outside)
    (cold.folder / name).symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(StoreWriteError):
        if name == "policy.json":
            cold.append_document(name, lambda last: b"x")
        else:
            cold.archive([make(1)])
    if name == "policy.json":
        with pytest.raises(IntegrityCheckError, match="a link"):
            cold.read_document(name)
    assert outside.read_bytes() == before


# -- who can read it


def test_everything_is_for_its_owner_alone_and_not_for_git(tmp_path: Path, session: str, make: Make) -> None:
    before = os.umask(0o022)
    try:
        with FileStore(tmp_path / "home" / ".mmu", session) as opened:
            opened.archive([make(1), make(2)])
            opened.write_document("policy.json", b"{}")
            opened.append_document("ledger.jsonl", lambda last: b"x")
            with log_of(opened).open("ab") as log:
                log.write(b"torn")
            opened.archive([make(3)])
    finally:
        os.umask(before)
    assert quarantined(opened) == [b"torn"]
    root = tmp_path / "home" / ".mmu"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert (root / ".gitignore").read_bytes() == b"*\n"


# -- session ids

NASTY = [
    "",
    ".",
    "..",
    "/",
    "a/b",
    "../../etc",
    "a\\b",
    "C:",
    "con",
    "a\0b",
    "\n",
    "-rf",
    "*",
    "~",
    "A",
    "a",
    "İ",
    "i",
    "ı",
]
NASTY += ["e\u0301", "é", "🎉", "x" * 10_000, "x" * 9_999, "../" * 3_000, " a", "a ", ".gitignore", "session", "log.0"]


def test_sessions_of_any_id_live_side_by_side_inside_the_root(root: Path, make: Make, snapshot: Snapshot) -> None:
    for number, name in enumerate(NASTY):
        with FileStore(root, name) as opened:
            opened.archive([make(number, name.encode(), session=name)])
    for number, name in enumerate(NASTY):
        opened = FileStore(root, name, create=False)
        assert set(opened.entries) == {number}
        assert opened.get(number).payload == name.encode()
        assert opened.folder.resolve().parent == root.resolve()
    assert len(list(root.iterdir())) == len(NASTY) + 1  # and .gitignore
    assert [path.name for path in root.parent.iterdir()] == [root.name]


@given(st.lists(st.text(st.characters(exclude_categories=())) | st.sampled_from(NASTY), unique=True, max_size=20))
def test_two_session_ids_never_share_a_folder_name_and_each_is_one_plain_name(names: Sequence[str]) -> None:
    folders = [session_folder(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert folder[0] != "-"
        assert len(folder) <= 53


def test_a_session_id_that_is_no_text_is_refused(root: Path) -> None:
    with pytest.raises(InvalidNodeError):
        FileStore(root, "half \ud83d")


# -- several processes

WRITER = """
import sys
from pathlib import Path
from store import ColdNode, FileStore
root, session, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = FileStore(root, session)
print("ready", flush=True)
sys.stdin.readline()
for step in range(first, 120, 2):
    payload = b"step %d" % step
    store.archive([ColdNode.build(session=session, step_id=step, payload_kind="text", payload=payload, rendering="r")])
    print(step, flush=True)
if first:
    store.close()
"""


def test_two_processes_archive_into_one_session_at_once_and_nothing_is_lost(
    root: Path, session: str, child: Child
) -> None:
    writers = [child(WRITER, root, session, first) for first in (0, 1)]  # both may make the session
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    reader = FileStore(root, session, create=False)
    assert dict(reader.entries) == {}
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    acknowledged = sorted(int(line) for writer in writers for line in writer.communicate()[0].split())
    assert acknowledged == list(range(120))
    assert sorted(entry.step_id for entry in reader.refresh()) == acknowledged
    assert [reader.get(step).payload for step in acknowledged] == [b"step %d" % step for step in acknowledged]
    assert list(reader.refresh()) == []
    with FileStore(root, session) as again:
        assert set(again.entries) == set(acknowledged)
        assert again.validate().faults == again.faults == ()


def test_a_reader_sees_what_another_store_archives_filed_or_not(cold: FileStore, make: Make) -> None:
    reader = reopened(cold)
    cold.archive([make(1)])
    assert [entry.step_id for entry in reader.refresh()] == [1]
    assert reader.get(1) == make(1)
    cold.close()
    assert list(reader.refresh()) == []
    assert reader.get(1) == make(1)


HOLDER = """
import sys
from pathlib import Path
from store.lock import WriterLock
with WriterLock(Path(sys.argv[1]), 1).held():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["asked to end", "killed"])
def test_a_lock_held_by_another_process_names_it_and_ends_with_it(
    cold: FileStore, make: Make, child: Child, end: str
) -> None:
    cold.archive([make(0)])
    holder = child(HOLDER, cold.folder / "lock")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    for attempt in (lambda: cold.archive([make(1)]), lambda: cold.append_document("ledger.jsonl", lambda last: b"x")):
        with pytest.raises(StoreLockedError) as caught:
            attempt()
        assert caught.value.owner == f"process {holder.pid}"
        assert str(holder.pid) in str(caught.value)
    assert set(cold.entries) == {0}
    assert reopened(cold).get(0) == make(0)  # reading waits for nobody
    if end == "killed":
        holder.kill()
    holder.communicate("\n")
    cold.archive([make(1)])
    assert reopened(cold).get(1) == make(1)


def test_threads_of_one_process_archive_through_one_store(root: Path, session: str, make: Make) -> None:
    store = FileStore(root, session)
    failures: list[BaseException] = []

    def archive(first: int) -> None:
        try:
            for step in range(first, 80, 4):
                store.archive([make(step)])
                assert store.get(step) == make(step)
        except BaseException as error:  # noqa: BLE001  a thread cannot raise into the test
            failures.append(error)

    threads = [threading.Thread(target=archive, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store.close()
    assert set(reopened(store).entries) == set(range(80))
    assert reopened(store).validate().faults == ()


def test_the_exported_index_holds_what_another_process_archived(cold: FileStore, make: Make) -> None:
    other = reopened(cold)
    cold.archive([make(1)])
    other.archive([make(2)])
    assert cold.export_index() == other.export_index()
    assert cold.read_document("recall_index.json") == cold.export_index()
    assert set(cold.entries) == {1, 2}


# -- any byte


def test_any_flipped_byte_of_a_node_file_is_found(cold: FileStore, make: Make) -> None:
    cold.archive([make(7)])
    cold.close()
    path = node_of(cold, 7)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(IntegrityCheckError):
            cold.get(7)
    path.write_bytes(whole)
    assert cold.get(7) == make(7)


@pytest.mark.parametrize("bit", range(8))
def test_any_flipped_bit_of_a_node_is_found(session: str, make: Make, bit: int) -> None:
    memory = MemoryStore(session)
    memory.archive([make(7)])
    name, whole = "cold_nodes/step_000007.json", memory.files["cold_nodes/step_000007.json"]
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << bit
        memory.files[name] = bytes(damaged)
        with pytest.raises(IntegrityCheckError):
            memory.get(7)


def test_a_node_file_cut_anywhere_is_found(session: str, make: Make) -> None:
    memory = MemoryStore(session)
    memory.archive([make(7)])
    name, whole = "cold_nodes/step_000007.json", memory.files["cold_nodes/step_000007.json"]
    for cut in range(len(whole)):
        memory.files[name] = whole[:cut]
        with pytest.raises(IntegrityCheckError):
            memory.get(7)


@pytest.mark.usefixtures("no_flush")
def test_any_flipped_byte_of_the_log_costs_at_most_its_record(cold: FileStore, make: Make) -> None:
    ends = three_steps(cold, make)
    whole = log_of(cold).read_bytes()
    around = [*range(ends[1], ends[1] + 20), *range(ends[2] - 5, ends[2])]  # the head, and the line feed at the end
    for position in sorted({*around, *range(ends[1], ends[2], 10)}):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        log_of(cold).write_bytes(damaged)
        opened = reopened(cold)
        assert isinstance(opened.faults[0], IntegrityCheckError)
        with pytest.raises(OrphanedNodeError):
            opened.get(1)
        assert [opened.get(step) for step in (0, 2)] == [make(0), make(2)]


@pytest.mark.parametrize("bit", range(8))
def test_any_flipped_bit_of_a_log_record_is_found_and_its_neighbours_still_read(make: Make, bit: int) -> None:
    bodies = [{"record": "archive", "node": make(step).document()} for step in range(3)]
    first, middle, last = map(frame, bodies)
    for position in range(len(middle)):
        damaged = bytearray(middle)
        damaged[position] ^= 1 << bit
        found = list(records(first + bytes(damaged) + last))
        assert [record.body for record in found if isinstance(record, Record)] == [bodies[0], bodies[2]]


def test_two_runs_with_the_same_steps_leave_the_same_bytes(
    tmp_path: Path, session: str, make: Make, snapshot: Snapshot
) -> None:
    for name in ("one", "two"):
        with FileStore(tmp_path / name, session, chance=fixed_chance()) as opened:
            opened.archive([make(1), make(2)])
            opened.archive([make(3)])
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


# -- generations


def test_a_process_that_died_between_a_seal_and_the_next_generation_is_followed_up(cold: FileStore, make: Make) -> None:
    cold.archive([make(1)])
    cold.flush()
    cold._seal()
    (cold.folder / "log.1").unlink()
    opened = reopened(cold)
    assert (opened.get(1), len(opened.entries), opened.faults) == (make(1), 1, ())
    opened.archive([make(2)])
    assert reopened(opened).get(2) == make(2)
    assert opened.validate().faults == ()


def test_two_that_find_a_seal_and_no_next_generation_write_one_behind_the_other(cold: FileStore, make: Make) -> None:
    cold.archive([make(1)])
    cold.flush()
    cold._seal()
    (cold.folder / "log.1").unlink()
    one, two = reopened(cold), reopened(cold)
    one.archive([make(2)])
    two.archive([make(3)])
    assert [entry.step_id for entry in one.refresh()] == [3]
    for store in (one, two, reopened(cold)):
        assert sorted(store.entries) == [1, 2, 3]
        assert store.validate().faults == ()


def test_an_empty_session_that_was_sealed_opens(cold: FileStore, make: Make) -> None:
    cold._seal()
    (cold.folder / "log.1").unlink()
    opened = reopened(cold)
    opened.archive([make(1)])
    assert reopened(cold).validate() == opened.validate()


def test_a_reader_follows_a_log_that_is_sealed_under_it(cold: FileStore, make: Make) -> None:
    reader = reopened(cold)
    seen: list[int] = []
    for step_id in range(12):
        cold.archive([make(step_id)])
        if step_id % 3 == 2:
            cold.flush()
            cold._seal()
        if step_id % 5 == 4:
            seen += [entry.step_id for entry in reader.refresh()]
    assert seen == list(range(10))
    assert list(reader.entries) == list(range(10))
    reader.refresh()
    assert [reader.get(step_id) for step_id in range(12)] == [make(step_id) for step_id in range(12)]
