"""The index beside its store: opened from files where they fit, derived anew where they do not."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from mmu.policy import HydrationPolicy
from mmu.postings import kept
from mmu.postings.kept import Kept, drop
from mmu.postings.segment import Segment
from mmu.tokens import EstimateMeter
from mmu.unit import MMU
from store import IndexEntry, MemoryStore, Version


def entry(step_id: int, *terms: str) -> IndexEntry:
    made = dict.fromkeys(IndexEntry.__dataclass_fields__, "")
    return IndexEntry(**(made | {"step_id": step_id, "identifiers": terms, "tokens": 7}))


class Told:
    """A history in memory. `read` counts how often all entries were asked for, `since` from where the last ones were."""

    def __init__(self, derived: Path | None, count: int = 0) -> None:
        self.derived, self.epoch = derived, 0
        self.log: list[IndexEntry] = []
        self.read, self.since = 0, -1
        for step_id in range(count):
            self.append(step_id)

    def append(self, step_id: int, *terms: str) -> None:
        self.log.append(entry(step_id, *(terms or ("all", f"w{step_id % 10}", f"x{step_id}"))))

    @property
    def entries(self) -> Mapping[int, IndexEntry]:
        self.read += 1
        return {entry.step_id: entry for entry in self.log}

    @property
    def version(self) -> Version:
        return Version(self.epoch, len(self.log), self.link_at(len(self.log)))

    def recent(self, count: int) -> Sequence[IndexEntry]:
        self.since = count
        return self.log[count:]

    def link_at(self, count: int) -> str:
        return sha256(repr([(e.step_id, e.identifiers) for e in self.log[:count]]).encode()).hexdigest()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def opened(told: Told) -> Kept:
    return Kept(told, tail=20)


def holds(index: Kept, told: Told) -> bool:
    return sorted(index.index.steps("all")) == sorted(e.step_id for e in told.log) and len(index.index) == len(told.log)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """A history of 450 entries that was indexed once, by steps, with a tail of 20."""
    made = Told(tmp_path, 3)
    index = opened(made)
    for step_id in range(3, 450):
        made.append(step_id)
        index.follow()
    assert holds(index, made)
    made.read = 0
    return made


def test_what_was_kept_is_opened_without_reading_all_entries(told: Told) -> None:
    index = opened(told)
    assert holds(index, told)
    assert told.read == 0
    assert told.since == 440
    assert len(files(told.derived or Path())) <= 2


def test_a_large_archive_is_derived_at_once_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmu.postings import seal

    monkeypatch.setattr(seal, "PART", 100)
    told, seen = Told(tmp_path, 450), list[tuple[int, int]]()
    index = Kept(told, lambda done, total: seen.append((done, total)), tail=20)
    assert holds(index, told)
    assert seen == [(100, 450), (200, 450), (300, 450), (400, 450), (450, 450)]
    assert files(tmp_path) == ["postings-000000000000-000000000450.segment"]


@pytest.mark.parametrize("what", ["epoch", "link", "shorter"])
def test_another_history_is_derived_anew(told: Told, what: str) -> None:
    if what == "epoch":
        told.epoch = 1
    elif what == "link":
        told.log[5] = entry(5, "all", "changed")
    else:
        del told.log[100:]
    assert holds(opened(told), told)
    assert (list(opened(told).index.steps("changed")) == [5]) == (what == "link")


def test_an_epoch_that_changes_while_it_is_open_is_noticed(told: Told) -> None:
    index = opened(told)
    told.log[5] = entry(5, "all", "changed")
    del told.log[100:]
    told.epoch = 1
    index.follow()
    assert holds(index, told)
    assert list(index.index.steps("changed")) == [5]


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:-9], lambda raw: raw[:70] + b"?" + raw[71:]])
def test_a_file_that_is_no_segment_is_derived_anew(told: Told, damage: Callable[[bytes], bytes]) -> None:
    for path in (told.derived or Path()).iterdir():
        path.write_bytes(damage(path.read_bytes()))
    assert holds(opened(told), told)


def test_a_byte_that_changed_on_disk_never_gives_a_wrong_answer(told: Told) -> None:
    folder = told.derived or Path()
    (large,) = folder.glob("postings-000000000000-*")
    whole = large.read_bytes()
    for at in range(600, len(whole), 97):
        large.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        index = opened(told)
        assert index.ask(lambda postings: [list(postings.steps(f"x{i}")) for i in range(450)]) == [
            [i] for i in range(450)
        ]
        assert index.ask(lambda postings: postings.cost(3)) == 7
        assert sorted(index.ask(lambda postings: postings.steps("w7"))) == list(range(7, 450, 10))


def test_a_damaged_file_that_cannot_be_deleted_is_passed_over(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    folder = told.derived or Path()
    for path in folder.iterdir():
        raw = path.read_bytes()
        at, _ = Segment(raw)._places["lists"]
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    monkeypatch.setattr(kept, "drop", read_only)
    monkeypatch.setattr(kept, "_write", read_only)
    index = opened(told)
    assert not index.validate()
    for step_id in range(450, 500):
        told.append(step_id)
    assert holds(opened(told), told), "the tail is sealed on the way, which reads the damaged part"
    index.follow()
    assert holds(index, told)


def test_validate_finds_what_was_not_read_yet_and_repairs_it(told: Told) -> None:
    assert opened(told).validate()
    (large,) = (told.derived or Path()).glob("postings-000000000000-*")
    raw = large.read_bytes()
    at, _ = Segment(raw)._places["lists"]
    large.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    index = opened(told)
    assert not index.validate()
    assert index.validate()
    assert holds(index, told)


def test_a_disk_that_takes_no_file_costs_nothing_but_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept, "_write", full)
    told = Told(tmp_path / "derived", 100)
    assert holds(opened(told), told)
    assert files(tmp_path / "derived") == []
    (tmp_path / "file").write_text("no folder")
    told = Told(tmp_path / "file", 100)
    assert holds(opened(told), told)


def test_files_can_be_dropped_under_an_open_index(told: Told) -> None:
    index, folder = opened(told), told.derived or Path()
    (folder / "postings-x.tmp").write_bytes(b"left by a killed process")
    (folder / "other").write_bytes(b"")
    drop(folder)
    assert files(folder) == ["other"]
    assert holds(index, told)
    assert holds(opened(told), told)


def test_what_a_killed_process_left_half_written_goes_with_the_next_file(told: Told) -> None:
    folder = told.derived or Path()
    (folder / "postings-x.tmp").write_bytes(b"half")
    index = opened(told)
    for step_id in range(450, 480):
        told.append(step_id)
        index.follow()
    assert not [name for name in files(folder) if name.endswith(".tmp")]


def test_two_processes_may_write_and_both_are_right(told: Told) -> None:
    first, second = opened(told), opened(told)
    for step_id in range(450, 700):
        told.append(step_id)
        first.follow()
        if step_id % 90 == 0:
            second.follow()
            assert holds(second, told)
    second.follow()
    assert holds(first, told) and holds(second, told) and holds(opened(told), told)


def _fill(folder: Path, steps: range) -> None:
    told = Told(folder, steps.start)
    index = opened(told)
    for step_id in steps:
        told.append(step_id)
        index.follow()
        assert holds(index, told)


def test_processes_at_the_same_time_leave_a_folder_that_opens(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_fill, args=(tmp_path, range(start, 300))) for start in (0, 50, 130)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0, 0]
    told = Told(tmp_path, 300)
    assert holds(opened(told), told)


def test_ids_in_any_order_and_old_ids_again_are_right(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for step_id in (*range(100, 160), *range(60), 300, 200):
        told.append(step_id)
    index = opened(told)
    assert holds(index, told)
    told.append(110, "all", "again")
    index.follow()
    assert list(index.index.steps("again")) == [110]
    assert list(index.index.steps("x110")) == []
    for step_id in range(400, 440):
        told.append(step_id)
    index.follow()
    again = opened(told)
    assert list(again.index.steps("x110")) == []
    assert sorted(again.index.steps("all")) == sorted({e.step_id for e in told.log})


def test_a_store_without_a_history_is_indexed_in_memory() -> None:
    store = MemoryStore()
    mmu = MMU(store, HydrationPolicy(), EstimateMeter("for a test"), lambda: "2026-01-01T00:00:00Z")
    mmu.fold("The relay listens on port 8931.", 4)
    other = MMU(store, HydrationPolicy(), EstimateMeter("for a test"), lambda: "2026-01-01T00:00:00Z")
    other.fold("The relay moved to port 8932.", 9)
    mmu.refresh()
    assert [pick.step_id for pick in mmu.select("relay port 8931").picks] == [4]
    assert [found.step_id for found in mmu.recall("relay port", 1)] == [9]


def test_mapped_lists_that_were_given_back_are_read_again(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmu.postings import segment

    monkeypatch.setattr(segment, "RELEASE", (3, 0))
    index = opened(told)
    for _ in range(3):
        assert [list(index.index.steps(f"x{i}")) for i in range(450)] == [[i] for i in range(450)]
        assert holds(index, told)
