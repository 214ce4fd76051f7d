"""Somebody edits the folder: what was done is told apart, and no flipped byte goes unseen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import ColdNode, FileStore, OrphanedNodeError, StoreError
from store.chain import commitment, link
from store.log import Record, frame, records

Make = Callable[..., ColdNode]
LONG = bool(os.environ.get("MMU_LONG"))
AT = "2026-12-01T00:00:00Z"
KEY = b"a key that lies elsewhere"


def node(make: Make, step_id: int, **values: Any) -> ColdNode:
    return make(step_id, b"payload %d" % step_id, **values)


@pytest.fixture
def cold(tmp_path: Path, session: str, make: Make) -> FileStore:
    """Steps 0 to 7: 0 to 3 in a sealed generation, step 2 of them forgotten, the others in the open one."""
    store = FileStore(tmp_path / ".mmu", session)
    store.archive([node(make, step_id) for step_id in range(4)])
    store.forget([2], at=AT)
    store.archive([node(make, step_id) for step_id in range(4, 8)])
    store.close()
    assert store.validate().faults == ()
    return store


def told(store: FileStore, **options: Any) -> list[str]:
    """What a fresh look finds."""
    return [str(fault) for fault in FileStore(store.folder.parent, store.session, **options).validate().faults]


def file_of(store: FileStore, step_id: int) -> Path:
    return store.folder / f"cold_nodes/step_{step_id:06d}.json"


def generation_of(store: FileStore, step_id: int) -> Path:
    for path in sorted(store.folder.glob("log.*")):
        if any(one.body.get("entry", {}).get("step_id") == step_id for one in whole(path)):
            return path
    raise AssertionError(step_id)


def whole(path: Path) -> list[Record]:
    return [one for one in records(path.read_bytes()) if isinstance(one, Record)]


def edit_entry(store: FileStore, step_id: int, *, relink: bool = False) -> None:
    """Change an entry in the log as somebody does who knows the format."""
    path = generation_of(store, step_id)
    bodies = [one.body for one in whole(path)]
    before = ""
    for body in bodies:
        if body["record"] == "archive" and body["entry"]["step_id"] == step_id:
            body["entry"]["summary"] = "something else"
            if relink:
                body["link"] = link(before, commitment(body["salt"], body["entry"]))
        before = body.get("link", before) or body.get("chain", "").partition(":")[2]
    path.write_bytes(b"".join(map(frame, bodies)))


def test_an_edited_node_is_named(cold: FileStore) -> None:
    file_of(cold, 5).write_bytes(file_of(cold, 5).read_bytes().replace(b"payload 5", b"payload 6"))
    (fault,) = told(cold)
    assert fault.startswith("step 5: artifact_sha256 is ")


def test_an_edited_node_whose_hashes_were_computed_anew_does_not_fit_its_entry(cold: FileStore, make: Make) -> None:
    file_of(cold, 5).write_bytes(make(5, b"another payload").to_bytes())
    (fault,) = told(cold)
    assert fault.startswith("step 5: the index's artifact_sha256 is ")


@pytest.mark.parametrize("step_id", [1, 5], ids=["in a sealed generation", "in the open one"])
def test_an_edited_entry_is_named(cold: FileStore, step_id: int) -> None:
    edit_entry(cold, step_id)
    assert told(cold) == [
        f"step {step_id}: entry in the chain is edited, or out of its place, expected as it was archived"
    ]


@pytest.mark.parametrize("step_id", [1, 5])
def test_an_edited_entry_with_its_link_computed_anew_breaks_the_next_link(cold: FileStore, step_id: int) -> None:
    edit_entry(cold, step_id, relink=True)
    found = told(cold)
    assert found
    assert all("chain" in fault or "history" in fault for fault in found)


def test_nodes_that_changed_places_are_told_by_their_ids(cold: FileStore) -> None:
    four, five = file_of(cold, 4).read_bytes(), file_of(cold, 5).read_bytes()
    file_of(cold, 4).write_bytes(five)
    file_of(cold, 5).write_bytes(four)
    assert told(cold) == [
        "step 4: the index's step_id is 5, expected 4",
        "step 5: the index's step_id is 4, expected 5",
    ]


def test_a_node_of_another_session_is_told_by_its_session(cold: FileStore, make: Make) -> None:
    file_of(cold, 5).write_bytes(node(make, 5, session="another").to_bytes())
    assert told(cold) == ["step 5: the node's session is another, expected refactor-42"]


def test_a_node_that_was_put_in_has_no_entry(cold: FileStore, make: Make) -> None:
    file_of(cold, 42).write_bytes(node(make, 42).to_bytes())
    opened = FileStore(cold.folder.parent, cold.session)
    (fault,) = opened.validate().faults
    assert isinstance(fault, OrphanedNodeError)


@pytest.mark.parametrize("with_nodes", [False, True])
def test_a_history_that_was_cut_off_is_shorter_than_its_head_says(cold: FileStore, with_nodes: bool) -> None:
    path = generation_of(cold, 7)
    at = next(one.start for one in whole(path) if one.body.get("entry", {}).get("step_id") == 6)
    path.write_bytes(path.read_bytes()[:at])
    for step_id in (6, 7) if with_nodes else ():
        file_of(cold, step_id).unlink()
    found = told(cold)
    assert any(
        "history is 2 fewer: the newest were cut off, or an older state was put back" in fault for fault in found
    )
    assert sum("node without an index entry" in fault for fault in found) == (0 if with_nodes else 2)


def test_a_sealed_generation_that_was_deleted_leaves_a_gap(cold: FileStore) -> None:
    generation_of(cold, 1).unlink()
    found = told(cold)
    assert any(
        "history" in fault and ("without entries 0 to 3" in fault or "before a head" in fault) for fault in found
    )


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[:-9], lambda raw: raw[:-9] + b"x" + raw[-8:], None]
)
def test_a_sealed_generation_without_a_seal_costs_its_table_and_hangs_nothing(
    cold: FileStore, damage: Callable[[bytes], bytes] | None
) -> None:
    path, link = generation_of(cold, 1), cold.link_at(2)
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    opened = FileStore(cold.folder.parent, cold.session)
    assert {entry.step_id for entry in opened.recent(0)} >= {4, 5, 6, 7}
    assert set(opened.entries) == {4, 5, 6, 7} == {entry.step_id for entry in opened.entries.values()}
    assert opened.link_at(2) in (None, link)
    assert opened.validate().faults
    assert opened.get(5).step_id == 5


def test_a_forgotten_step_is_no_fault_and_is_listed(cold: FileStore) -> None:
    audit = cold.validate()
    assert (audit.checked, audit.faults, audit.forgotten) == (7, (), (2,))


def test_a_list_of_forgotten_steps_that_the_chain_does_not_know_is_named(cold: FileStore) -> None:
    (cold.folder / "forgotten.jsonl").unlink()
    assert told(cold) == ["store: forgotten.jsonl is another list (steps 2), expected what the chain says"]


def test_only_an_anchor_tells_that_the_folder_was_put_back(tmp_path: Path, session: str, make: Make) -> None:
    root, anchor = tmp_path / ".mmu", tmp_path / "anchor"
    with FileStore(root, session, anchor=anchor) as store:
        store.archive([node(make, 1)])
    shutil.copytree(root, tmp_path / "older")
    with FileStore(root, session, anchor=anchor) as store:
        store.archive([node(make, 2)])
        assert store.validate().notes == ()
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "older", root)
    back = FileStore(root, session)
    audit = back.validate()
    assert audit.faults == ()
    assert "without an anchor nobody can tell" in audit.notes[0]
    (fault,) = back.validate(anchor=anchor).faults
    assert "history is 1 fewer" in str(fault)
    assert "as the anchor says" in str(fault)
    anchor.write_text('{"session": "other", "head": "1:00"}\n')
    assert "never told of session" in str(back.validate(anchor=anchor).faults[0])


def test_who_has_no_key_cannot_make_up_a_head(tmp_path: Path, session: str, make: Make) -> None:
    root = tmp_path / ".mmu"
    with FileStore(root, session, key=KEY) as store:
        store.archive([node(make, 1)])
    assert FileStore(root, session, key=KEY).validate().faults == ()
    assert "sealed with a key, and none was given" in told(store)[0]
    assert "its seal does not hold" in told(store, key=b"another")[0]
    shutil.rmtree(root)
    with FileStore(root, session) as forged:  # all of it made anew, and every hash is right
        forged.archive([node(make, 1, summary="made up")])
    assert told(forged) == []
    assert "not sealed with the key" in told(forged, key=KEY)[0]


def seen(root: Path, session: str) -> bool:
    """Whether opening refuses a folder, or a look over it reports something."""
    try:
        store = FileStore(root, session)
        return bool(store.faults or store.validate().faults)
    except StoreError:
        return True


FILES = ("log.0", "log.1", "HEAD", "recall_index.json", "forgotten.jsonl", "cold_nodes/step_000005.json")


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_byte_goes_unseen(cold: FileStore, name: str, tmp_path: Path) -> None:
    """Each byte of each file, one after the other (here every 23rd of the large ones)."""
    path = cold.folder / name
    good = path.read_bytes()
    step = 1 if LONG or len(good) < 600 else 23
    unseen = []
    for at in range(0, len(good), step):
        for mask in (0x01, 0x20):
            path.write_bytes(good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :])
            if not seen(cold.folder.parent, cold.session):
                unseen.append((at, mask, good[max(0, at - 20) : at + 20]))
            for other in (*FILES, "log.2"):  # opening may have written
                restore(cold, other, tmp_path)
    assert unseen == []


@pytest.fixture(autouse=True)
def _kept(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if "name" in request.fixturenames:
        cold: FileStore = request.getfixturevalue("cold")
        shutil.copytree(cold.folder, tmp_path / "kept")


def restore(cold: FileStore, name: str, tmp_path: Path) -> None:
    kept, path = tmp_path / "kept" / name, cold.folder / name
    if not kept.exists():
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_bytes() != kept.read_bytes():
        path.write_bytes(kept.read_bytes())
