"""Explicit repair: a plan that only reads, then its execution, which deletes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from store import (
    Action,
    BrokenReferenceError,
    ColdNode,
    FileStore,
    IndexEntry,
    IntegrityCheckError,
    NodeConflictError,
    NodeNotFoundError,
    OrphanedNodeError,
    StoreWriteError,
    plan,
    repair,
)
from store.journal import Journal

Make = Callable[..., ColdNode]
Snapshot = Callable[[Path], dict[str, bytes | str | None]]
Broken = Callable[[], FileStore]


def node_of(store: FileStore, step_id: int) -> Path:
    return store.folder / f"cold_nodes/step_{step_id:06d}.json"


def quarantine(store: FileStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store.folder / "quarantine").glob("*")}


@pytest.fixture
def cold(tmp_path: Path, session: str, make: Make) -> FileStore:
    """Steps 0 to 4, all filed."""
    with FileStore(tmp_path / ".mmu", session) as store:
        store.archive([make(step, b"payload %d" % step) for step in range(5)])
    return store


def reopened(store: FileStore) -> FileStore:
    return FileStore(store.folder.parent, store.session)


def with_log(store: FileStore, *bodies: dict[str, object]) -> FileStore:
    """The store as it opens after someone wrote further records into its log, each with its right place in the chain."""
    journal = Journal(store.folder, store.session)
    journal.begin()
    for body in bodies:
        journal.append(journal.chained([{**body, "salt": "00" * 16}]) if body["record"] == "archive" else [body])
    return reopened(store)


def every_kind(store: FileStore, make: Make) -> FileStore:
    """A store with a fault for each kind of action: restore twice, adopt, quarantine twice, drop."""
    node_of(store, 0).write_bytes(b"{")
    node_of(store, 1).unlink()
    node_of(store, 42).write_bytes(make(42, b"forty-two").to_bytes())
    node_of(store, 43).write_bytes(b"torn")
    (store.folder / "cold_nodes/notes.txt").write_bytes(b"mine")
    entry = replace(store.entries[2], artifact_sha256="0" * 64)  # neither the file nor the log fits this entry
    body = {"record": "archive", "entry": entry.document(), "node": make(2, b"payload 2").document()}
    return with_log(store, body, {"record": "filed", "steps": [2]})


def test_a_plan_names_an_action_for_each_fault_and_changes_nothing(
    cold: FileStore, make: Make, snapshot: Snapshot
) -> None:
    broken = every_kind(cold, make)
    before = snapshot(cold.folder)
    actions = plan(broken)
    assert [(action.kind, action.step_id, action.file) for action in actions] == [
        ("restore", 0, "cold_nodes/step_000000.json"),
        ("restore", 1, "cold_nodes/step_000001.json"),
        ("drop", 2, "cold_nodes/step_000002.json"),
        ("quarantine", None, "cold_nodes/notes.txt"),
        ("adopt", 42, "cold_nodes/step_000042.json"),
        ("quarantine", 43, "cold_nodes/step_000043.json"),
    ]
    assert str(actions[0]).startswith("restore cold_nodes/step_000000.json: the log holds the step whole")
    assert plan(broken) == actions
    assert snapshot(cold.folder) == before


def test_after_a_repair_the_store_is_sound_and_nothing_was_deleted(
    cold: FileStore, make: Make, snapshot: Snapshot
) -> None:
    broken = every_kind(cold, make)
    lost = {node_of(cold, step).read_bytes() for step in (0, 2, 43)} | {b"mine"}
    repair(broken, plan(broken))
    for store in (broken, reopened(broken)):
        assert store.validate().faults == ()
        assert store.get(0) == make(0, b"payload 0")
        assert store.get(1) == make(1, b"payload 1")
        assert store.get(42) == make(42, b"forty-two")
        with pytest.raises(NodeNotFoundError):
            store.get(2)
        assert [store.get(step) for step in (3, 4)] == [make(step, b"payload %d" % step) for step in (3, 4)]
    assert reopened(broken).faults == ()
    assert set(quarantine(cold).values()) == lost
    before = snapshot(cold.folder)
    again = reopened(broken)
    assert plan(again) == ()
    repair(again, ())
    assert snapshot(cold.folder) == before


def test_a_plan_carried_out_twice_does_no_harm(cold: FileStore, make: Make) -> None:
    broken = every_kind(cold, make)
    actions = plan(broken)
    repair(broken, actions)
    repair(broken, [action for action in actions if action.kind != "drop"])
    assert reopened(broken).validate().faults == ()
    assert reopened(broken).get(42) == make(42, b"forty-two")


def test_a_sound_store_needs_no_repair(cold: FileStore) -> None:
    assert plan(cold) == plan(reopened(cold)) == ()


def test_nothing_is_repaired_by_opening_reading_validating_or_closing(
    cold: FileStore, make: Make, snapshot: Snapshot
) -> None:
    every_kind(cold, make)
    before = snapshot(cold.folder)
    with reopened(cold) as store:
        store.validate()
        for step, error in {0: IntegrityCheckError, 1: BrokenReferenceError, 42: OrphanedNodeError}.items():
            with pytest.raises(error):
                store.get(step)
    assert snapshot(cold.folder) == before


def test_a_node_folder_that_was_deleted_is_restored_from_the_log(cold: FileStore, make: Make) -> None:
    for path in (cold.folder / "cold_nodes").iterdir():
        path.unlink()
    (cold.folder / "cold_nodes").rmdir()
    broken = reopened(cold)
    assert [action.kind for action in plan(broken)] == ["restore"] * 5
    repair(broken, plan(broken))
    assert reopened(cold).validate().faults == ()
    assert [reopened(cold).get(step) for step in range(5)] == [make(step, b"payload %d" % step) for step in range(5)]


def test_a_step_whose_record_was_damaged_gets_its_entry_back_from_its_file(cold: FileStore, make: Make) -> None:
    log = cold.folder / "log.0"
    log.write_bytes(log.read_bytes().replace(b"payload 3", b"payload X"))
    broken = reopened(cold)
    actions = plan(broken)
    assert [(action.kind, action.step_id) for action in actions] == [("adopt", 3), ("none", None)]
    assert "only a person" in actions[1].reason
    assert str(actions[1]).startswith("none the log")
    repair(broken, actions)
    again = reopened(cold)
    assert again.get(3) == make(3, b"payload 3")
    # The damaged stretch stays listed: nobody can say what else it held.
    assert [(type(fault), fault.step_id) for fault in again.validate().faults] == [(IntegrityCheckError, None)]
    assert [action.kind for action in plan(again)] == ["none"]


@pytest.mark.parametrize("file", ["../../outside.json", "cold_nodes/step_000004.json"])
def test_an_entry_that_names_another_file_is_put_right_and_that_file_left_alone(
    cold: FileStore, make: Make, file: str
) -> None:
    (cold.folder / "../../outside.json").write_bytes(b"outside")
    node = make(3, b"payload 3")
    entry = replace(IndexEntry.of(node, "x"), file=file)
    broken = with_log(cold, {"record": "archive", "entry": entry.document(), "node": node.document()})
    assert [(action.kind, action.file) for action in plan(broken)] == [("restore", "cold_nodes/step_000003.json")]
    repair(broken, plan(broken))
    for store in (broken, reopened(broken)):
        assert store.validate().faults == ()
        assert store.entries[3].file == "cold_nodes/step_000003.json"
        assert [store.get(step) for step in (3, 4)] == [node, make(4, b"payload 4")]
    assert (cold.folder / "../../outside.json").read_bytes() == b"outside"


def test_an_orphan_of_another_session_or_step_is_set_aside(cold: FileStore, make: Make) -> None:
    node_of(cold, 42).write_bytes(make(42, session="another").to_bytes())
    node_of(cold, 43).write_bytes(make(44).to_bytes())
    broken = reopened(cold)
    actions = plan(broken)
    assert [(action.kind, action.file[-8:]) for action in actions] == [
        ("quarantine", "042.json"),
        ("quarantine", "043.json"),
    ]
    assert "session 'another'" in actions[0].reason
    assert "step 44" in actions[1].reason
    repair(broken, actions)
    assert reopened(cold).validate().faults == ()
    assert set(quarantine(cold).values()) == {make(42, session="another").to_bytes(), make(44).to_bytes()}


def test_an_orphan_whose_step_was_archived_since_the_plan_is_not_adopted_over_it(cold: FileStore, make: Make) -> None:
    node_of(cold, 42).write_bytes(make(42).to_bytes())
    actions = plan(reopened(cold))
    node_of(cold, 42).unlink()
    cold.archive([make(42, b"another payload")])
    cold.close()
    node_of(cold, 42).write_bytes(make(42).to_bytes())
    with pytest.raises(NodeConflictError):
        repair(cold, actions)
    repair(cold, plan(cold))
    assert reopened(cold).get(42).payload == b"another payload"


def test_a_link_in_place_of_a_node_is_set_aside_and_what_it_points_to_left_alone(cold: FileStore, make: Make) -> None:
    outside = cold.folder.parent / "outside.json"
    node_of(cold, 1).rename(outside)
    node_of(cold, 1).symlink_to(outside)
    node_of(cold, 42).symlink_to(outside)
    broken = reopened(cold)
    assert [(action.kind, action.step_id) for action in plan(broken)] == [("restore", 1), ("quarantine", 42)]
    repair(broken, plan(broken))
    assert reopened(cold).validate().faults == ()
    assert not node_of(cold, 1).is_symlink()
    assert outside.read_bytes() == make(1, b"payload 1").to_bytes()
    assert all(path.is_symlink() for path in (cold.folder / "quarantine").iterdir())


def test_a_link_in_place_of_the_node_folder_is_left_to_a_person(
    cold: FileStore, snapshot: Snapshot, make: Make
) -> None:
    outside = cold.folder.parent / "outside"
    (cold.folder / "cold_nodes").rename(outside)
    (outside / "step_000042.json").write_bytes(make(42).to_bytes())
    (cold.folder / "cold_nodes").symlink_to(outside)
    broken = reopened(cold)
    before = snapshot(cold.folder.parent)
    actions = plan(broken)
    assert {action.kind for action in actions} == {"none"}
    assert "cold_nodes is a link" in actions[0].reason
    repair(broken, actions)
    assert snapshot(cold.folder.parent) == before


def test_a_folder_or_a_pipe_among_the_nodes_is_set_aside(cold: FileStore) -> None:
    (cold.folder / "cold_nodes/step_000050.json").mkdir()
    (cold.folder / "cold_nodes/step_000050.json/inside.txt").write_bytes(b"mine")
    os.mkfifo(cold.folder / "cold_nodes/step_000051.json")
    broken = reopened(cold)
    assert [action.kind for action in plan(broken)] == ["quarantine", "quarantine"]
    repair(broken, plan(broken))
    assert reopened(cold).validate().faults == ()
    (kept,) = (cold.folder / "quarantine").glob("step_000050*/inside.txt")
    assert kept.read_bytes() == b"mine"


def test_two_spoilt_versions_of_one_step_are_both_kept(cold: FileStore) -> None:
    for spoilt in (b"first", b"second"):
        node_of(cold, 1).write_bytes(spoilt)
        repair(cold, plan(cold))
    assert set(quarantine(cold).values()) == {b"first", b"second"}
    assert cold.validate().faults == ()


def test_a_repair_that_the_system_refuses_says_where_and_can_be_done_again(cold: FileStore, make: Make) -> None:
    node_of(cold, 1).write_bytes(b"spoilt")
    (cold.folder / "quarantine").write_bytes(b"a file in its place")
    with pytest.raises(StoreWriteError, match="quarantine"):
        repair(cold, plan(cold))
    assert node_of(cold, 1).read_bytes() == b"spoilt"
    (cold.folder / "quarantine").unlink()
    repair(cold, plan(cold))
    assert cold.get(1) == make(1, b"payload 1")


def test_an_action_reads_as_a_sentence() -> None:
    assert str(Action("drop", 7, "", "gone")) == "drop step 7: gone"
    assert str(Action("none", None, "", "damaged")) == "none the log: damaged"
