"""The contract of `ColdStore`, run for the file store and for the memory store alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store import (
    BrokenReferenceError,
    ColdNode,
    ColdStore,
    FileStore,
    IndexEntry,
    IntegrityCheckError,
    InvalidNodeError,
    MemoryStore,
    NodeConflictError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    canonical,
    canonical_sha256,
    decode_text,
    encode_text,
    sha256_hex,
)

Make = Callable[..., ColdNode]
NODE_7 = "cold_nodes/step_000007.json"


class Folder(MutableMapping[str, bytes]):
    """A folder's files by relative path, as `MemoryStore.files` holds them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def __setitem__(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def __delitem__(self, name: str) -> None:
        (self.path / name).unlink()

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Sealing(FileStore):
    """A file store that has nothing in the open generation of its log: all that was archived is sealed."""

    def archive(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        entries = super().archive(nodes, flush=flush)
        self.flush()
        return entries


@pytest.fixture(params=["file", "sealed", "memory"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, session: str) -> Callable[[str], ColdStore]:
    """`open_store(name)` is an empty store of the session, another one for each name."""
    if request.param == "file":
        return lambda name: FileStore(tmp_path / name, session)
    if request.param == "sealed":
        return lambda name: Sealing(tmp_path / name, session, seal_bytes=0)
    return lambda name: MemoryStore(session)


@pytest.fixture
def cold(open_store: Callable[[str], ColdStore]) -> ColdStore:
    return open_store("one")


@pytest.fixture
def files(cold: ColdStore) -> MutableMapping[str, bytes]:
    """What lies in the store, to be read and tampered with."""
    return Folder(cold.folder) if isinstance(cold, FileStore) else cold.files  # type: ignore[attr-defined]


# -- round trip

PAYLOADS = {
    "empty": b"",
    "one NUL": b"\0",
    "UTF-16 of a console": "Wsl\r\n".encode("utf-16-le"),
    "CRLF and a bare CR": b"a\r\nb\rc\n",
    "white space at the end": b"text \t\n\n  ",
    "lone surrogates": encode_text("cut \ud83d in half, \udc00"),
    "invalid UTF-8": b"\xff\xfe\x80 ok \xc3",
    "cut inside a character": b"tail \xe4\xb8",
    "emoji": "🎉 👩‍👩‍👧‍👦".encode(),
    "NFD, not to be composed": "İnşaat e\u0301".encode(),
    "line separators": "a\u2028b\u2029c\x85d".encode(),
    "looks like JSON": b'{"b": 1.0, "a": 1e16, "a": -0}',
    "every byte": bytes(range(256)),
    "1 MB": b"0123456789abcdef" * 65_536,
    "1 MB of binary": bytes(range(255, -1, -1)) * 4_096,
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_payload_comes_back_byte_for_byte(cold: ColdStore, make: Make, payload: bytes) -> None:
    node = make(7, payload)
    cold.archive([node])
    back = cold.get(7)
    assert back.payload == payload
    assert back == node
    assert sha256_hex(back.payload) == cold.entries[7].payload_sha256
    assert cold.entries[7].size == len(payload)
    assert cold.validate().faults == ()


@given(payload=st.binary(), rendering=st.text(), summary=st.text())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_and_any_rendering_come_back(
    cold: ColdStore, make: Make, payload: bytes, rendering: str, summary: str
) -> None:
    node = make(len(cold.entries), payload, rendering=rendering, summary=summary)
    cold.archive([node])
    assert cold.get(node.step_id) == node


@given(st.text(st.characters(exclude_categories=())))
@example("\ud83d cut in half \udc00")
@example("\ud83c\udf89")
def test_any_text_with_lone_surrogates_survives_its_bytes(text: str) -> None:
    assert decode_text(encode_text(text)) == text


def test_many_steps_in_one_batch_come_back_in_the_order_given(cold: ColdStore, make: Make) -> None:
    order = [150, 3, 0, *range(10, 140)]
    entries = cold.archive([make(step, b"payload %d" % step) for step in order])
    assert [entry.step_id for entry in entries] == order
    assert [cold.get(step).payload for step in order] == [b"payload %d" % step for step in order]


# -- what archive refuses


def test_the_same_payload_again_changes_nothing(cold: ColdStore, files: MutableMapping[str, bytes], make: Make) -> None:
    first = cold.archive([make(7)])
    before = files[NODE_7]
    assert cold.archive([make(7, folded_at="2027-01-01T00:00:00Z", summary="told again")]) == first
    assert files[NODE_7] == before
    assert cold.get(7).folded_at == "2026-01-02T03:05:00Z"


def test_another_payload_is_a_conflict_and_nothing_of_the_batch_is_kept(cold: ColdStore, make: Make) -> None:
    cold.archive([make(7)])
    with pytest.raises(NodeConflictError, match="step 7") as caught:
        cold.archive([make(1), make(7, b"other"), make(9)])
    assert caught.value.step_id == 7
    assert set(cold.entries) == {7}
    assert cold.get(7) == make(7)
    with pytest.raises(NodeNotFoundError):
        cold.get(1)
    assert cold.validate().faults == ()


def test_two_payloads_for_one_step_in_one_batch_are_a_conflict(cold: ColdStore, make: Make) -> None:
    with pytest.raises(NodeConflictError):
        cold.archive([make(1), make(2, b"a"), make(2, b"b")])
    assert dict(cold.entries) == {}
    assert len(cold.archive([make(2, b"a"), make(2, b"a")])) == 2
    assert set(cold.entries) == {2}


def test_a_step_of_another_session_is_refused(cold: ColdStore, make: Make) -> None:
    with pytest.raises(InvalidNodeError, match="session"):
        cold.archive([make(1), make(2, session="someone else")])
    assert dict(cold.entries) == {}


def test_an_empty_batch_is_nothing(cold: ColdStore, files: MutableMapping[str, bytes]) -> None:
    before = dict(files)
    assert list(cold.archive([])) == []
    assert {name: data for name, data in files.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_a_file_without_entry_is_neither_read_nor_overwritten(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(1)])
    files[NODE_7] = make(7).to_bytes()
    with pytest.raises(OrphanedNodeError, match=NODE_7):
        cold.get(7)
    with pytest.raises(OrphanedNodeError):
        cold.archive([make(2), make(7)])
    assert files[NODE_7] == make(7).to_bytes()
    assert set(cold.entries) == {1}


@pytest.mark.parametrize("step_id", [-1, 10**9, True, 1.0, "1", None])
def test_a_step_id_that_is_none_is_refused_at_building(make: Make, step_id: Any) -> None:
    with pytest.raises(InvalidNodeError, match="step_id"):
        make(step_id)


# -- the index


def test_an_entry_holds_what_its_node_holds(cold: ColdStore, make: Make) -> None:
    (entry,) = cold.archive([make(7)])
    node = cold.get(7)
    for name in ("payload_sha256", "projection_sha256", "artifact_sha256", "projection_version", "identifiers"):
        assert getattr(entry, name) == getattr(node, name)
    assert entry == IndexEntry.of(node, NODE_7) == cold.entries[7]
    assert IndexEntry.parse(json.loads(canonical(entry.document()))) == entry


def test_the_index_cannot_be_written_from_outside(cold: ColdStore, make: Make) -> None:
    cold.archive([make(7)])
    with pytest.raises(TypeError):
        cold.entries[8] = cold.entries[7]  # type: ignore[index]


def test_the_exported_index_is_the_same_for_the_same_steps_whatever_their_order(
    open_store: Callable[[str], ColdStore], make: Make
) -> None:
    one, two = open_store("one"), open_store("two")
    one.archive([make(2), make(10), make(1)])
    for step in (10, 1, 2):
        two.archive([make(step)])
    data = one.export_index()
    assert data == two.export_index() == one.export_index()
    document = json.loads(data)
    assert [row["step_id"] for row in document["entries"]] == [1, 2, 10]
    assert document["entries_sha256"] == canonical_sha256(document["entries"])
    assert one.read_document("recall_index.json") == data
    for row in document["entries"]:
        assert row["artifact_sha256"] == one.get(row["step_id"]).artifact_sha256


# -- what get refuses


@pytest.mark.parametrize("step_id", [2, -1, 10**9, pytest.param(10**300, id="huge"), True, False, 1.0, "1", None])
def test_a_step_that_was_never_archived_is_not_found(cold: ColdStore, make: Make, step_id: Any) -> None:
    cold.archive([make(0), make(1)])
    with pytest.raises(NodeNotFoundError):
        cold.get(step_id)


def recomputed(document: dict[str, Any], **changes: Any) -> bytes:
    """A node edited by someone who knows how the artifact hash is made."""
    edited = {**document, **changes}
    edited.pop("artifact_sha256")
    return canonical({**edited, "artifact_sha256": canonical_sha256(edited)})


def text(document: dict[str, Any], **options: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, **options).encode()


COMPACT = {"separators": (",", ":")}
Edit = Callable[[dict[str, Any]], bytes]
EDITS: dict[str, Edit] = {
    "payload": lambda node: canonical({**node, "payload": "port 5434"}),
    "rendering": lambda node: canonical({**node, "rendering": "port 5434"}),
    "identifiers": lambda node: canonical({**node, "identifiers": ["5434"]}),
    "identifiers, other order": lambda node: canonical({**node, "identifiers": node["identifiers"][::-1]}),
    "summary": lambda node: canonical({**node, "summary": "x"}),
    "folded_at": lambda node: canonical({**node, "folded_at": "2027-01-01T00:00:00Z"}),
    "step id": lambda node: canonical({**node, "step_id": 8}),
    "artifact hash": lambda node: canonical({**node, "artifact_sha256": "0" * 64}),
    "artifact hash missing": lambda node: canonical({k: v for k, v in node.items() if k != "artifact_sha256"}),
    "artifact hash null": lambda node: canonical({**node, "artifact_sha256": None}),
    "payload hash": lambda node: canonical({**node, "payload_sha256": "0" * 64}),
    "projection hash": lambda node: canonical({**node, "projection_sha256": "0" * 64}),
    "white space": lambda node: text(node, sort_keys=True),
    "line feed at the end": lambda node: canonical(node) + b"\n",
    "key order": lambda node: text(dict(reversed(node.items())), **COMPACT),
    "an escape": lambda node: canonical(node).replace(b"PostgreSQL", b"\\u0050ostgreSQL"),
    "a key twice": lambda node: canonical(node).replace(b'{"artifact', b'{"cut":0,"artifact', 1),
    "a further key": lambda node: canonical({**node, "zz": 1}),
    "a key beyond ASCII": lambda node: canonical(node).replace(b'"token"', '"tokén"'.encode()),
    "a number as float": lambda node: canonical(node).replace(b'"tokens":120', b'"tokens":1e0'),
    "a number too large": lambda node: canonical(node).replace(b'"tokens":120', b'"tokens":9007199254740993'),
    "an object that is a number": lambda node: canonical({**node, "sanitized": 5}),
    "a list that is null": lambda node: canonical({**node, "files": None}),
    "a list of two kinds": lambda node: recomputed(node, files=["a", 1]),
    "nesting without end": lambda node: canonical(node).replace(b'"files":[', b'"files":[' + b"[" * 900 + b"]" * 900),
    "payload null": lambda node: canonical({**node, "payload": None}),
    "half of it": lambda node: canonical(node)[: len(canonical(node)) // 2],
    "nothing": lambda node: b"",
    "NULs": lambda node: bytes(len(canonical(node))),
    "null": lambda node: b"null",
    "a list": lambda node: b"[]",
    "another version": lambda node: canonical({**node, "node_version": 2}),
    "summary, artifact recomputed": lambda node: recomputed(node, summary="port 5434"),
    "payload, artifact recomputed": lambda node: recomputed(node, payload="port 5434"),
    "session, artifact recomputed": lambda node: recomputed(node, session="other"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_node_is_never_read(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make, edit: Edit
) -> None:
    cold.archive([make(7), make(8)])
    edited = edit(json.loads(files[NODE_7]))
    assert edited != files[NODE_7]
    files[NODE_7] = edited
    with pytest.raises(IntegrityCheckError) as caught:
        cold.get(7)
    assert caught.value.step_id == 7
    assert "step 7" in str(caught.value)
    assert [str(fault) for fault in cold.validate().faults] == [str(caught.value)]
    assert cold.get(8) == make(8)


def test_the_copy_of_the_hash_in_the_index_catches_a_node_that_is_sound_in_itself(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(7)])
    files[NODE_7] = make(7, b"port 5434").to_bytes()
    assert ColdNode.from_bytes(files[NODE_7]).payload == b"port 5434"
    with pytest.raises(IntegrityCheckError, match="the index's artifact_sha256"):
        cold.get(7)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"payload": "port 5434", "rendering": "PostgreSQL"}, "payload_sha256"),
        ({"rendering": "port 5434"}, "projection_sha256"),
        ({"identifiers": ["5434"]}, "projection_sha256"),
        ({"projection_version": "mmu-projection-2"}, "projection_sha256"),
    ],
)
def test_payload_and_projection_are_checked_even_where_the_artifact_hash_was_recomputed(
    make: Make, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(IntegrityCheckError) as caught:
        ColdNode.from_bytes(recomputed(make(7).document(), **changes), 7)
    assert caught.value.what == what


def test_a_node_swapped_with_another_steps_file_is_never_read(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(7, b"seven"), make(8, b"eight")])
    other = "cold_nodes/step_000008.json"
    files[NODE_7], files[other] = files[other], files[NODE_7]
    for step_id in (7, 8):
        with pytest.raises(IntegrityCheckError):
            cold.get(step_id)


def test_a_missing_file_is_a_broken_reference_that_names_it(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(7)])
    del files[NODE_7]
    with pytest.raises(BrokenReferenceError, match=NODE_7):
        cold.get(7)


def test_an_entry_that_names_another_file_is_never_followed(cold: ColdStore, make: Make) -> None:
    cold.archive([make(7)])
    for file in ("../../outside.json", "cold_nodes/step_000008.json", "/etc/passwd", ""):
        entry = replace(cold.entries[7], file=file)
        cold._index.put(entry, 1) if isinstance(cold, FileStore) else cold.index.update({7: entry})  # type: ignore[attr-defined]
        with pytest.raises(PathContainmentError):
            cold.get(7)


# -- validate


def test_validate_lists_every_fault_in_the_order_of_steps_and_goes_on(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(step) for step in range(6)])
    files["cold_nodes/step_000001.json"] = b"{}"
    del files["cold_nodes/step_000003.json"]
    files["cold_nodes/step_000004.json"] = files["cold_nodes/step_000000.json"]
    files["cold_nodes/step_000042.json"] = make(42).to_bytes()
    seen: list[tuple[int, int]] = []
    audit = cold.validate(lambda done, total: seen.append((done, total)))
    assert [(type(fault), fault.step_id) for fault in audit.faults] == [
        (IntegrityCheckError, 1),
        (BrokenReferenceError, 3),
        (IntegrityCheckError, 4),
        (OrphanedNodeError, 42),
    ]
    assert audit.checked == 6
    assert seen == [(number, 6) for number in range(1, 7)]
    with pytest.raises(IntegrityCheckError, match="step 1"):
        audit.raise_first()


def test_validate_of_a_sound_store_finds_nothing_and_changes_nothing(
    cold: ColdStore, files: MutableMapping[str, bytes], make: Make
) -> None:
    cold.archive([make(step) for step in range(3)])
    before = dict(files)
    audit = cold.validate()
    audit.raise_first()
    assert (audit.checked, audit.faults) == (3, ())
    assert dict(files) == before


# -- documents


def test_a_document_is_written_read_and_replaced(cold: ColdStore) -> None:
    assert cold.read_document("policy.json") is None
    cold.write_document("policy.json", b"\0\xff\r\n")
    assert cold.read_document("policy.json") == b"\0\xff\r\n"
    cold.write_document("policy.json", b"", flush=False)
    assert cold.read_document("policy.json") == b""


def test_a_line_is_made_from_the_line_before_it(cold: ColdStore) -> None:
    seen: list[bytes] = []

    def after(last: bytes) -> bytes:
        seen.append(last)
        return b"x" * 70_000 if len(seen) == 2 else b"line %d" % len(seen)

    for _ in range(4):
        cold.append_document("ledger.jsonl", after)
    assert seen == [b"", b"line 1", b"x" * 70_000, b"line 3"]
    assert cold.read_document("ledger.jsonl") == b"line 1\n" + b"x" * 70_000 + b"\nline 3\nline 4\n"


def test_a_torn_last_line_is_ended_before_the_next_one(cold: ColdStore) -> None:
    cold.write_document("ledger.jsonl", b"whole\nto")
    seen: list[bytes] = []
    cold.append_document("ledger.jsonl", lambda last: seen.append(last) or b"next")
    assert seen == [b"to"]
    assert cold.read_document("ledger.jsonl") == b"whole\nto\nnext\n"


def test_a_line_that_cannot_be_made_leaves_the_document_as_it_was(cold: ColdStore) -> None:
    cold.write_document("ledger.jsonl", b"whole\n")
    with pytest.raises(ZeroDivisionError):
        cold.append_document("ledger.jsonl", lambda last: b"%d" % (1 // 0))
    assert cold.read_document("ledger.jsonl") == b"whole\n"


@pytest.mark.parametrize(
    "name",
    ["../policy.json", "/tmp/policy.json", "cold_nodes/step_000007.json", "", ".", "..", "log.0", "lock", "A.json"],
)
def test_a_document_name_with_a_path_in_it_is_refused(
    cold: ColdStore, files: MutableMapping[str, bytes], name: str
) -> None:
    before = dict(files)
    for attempt in (
        lambda: cold.read_document(name),
        lambda: cold.write_document(name, b"x"),
        lambda: cold.append_document(name, lambda last: b"x"),
    ):
        with pytest.raises(ValueError, match="no name of a session document"):
            attempt()
    assert dict(files) == before


def test_a_store_can_be_used_in_a_with_block_and_closed_twice(
    open_store: Callable[[str], ColdStore], make: Make
) -> None:
    with open_store("one") as cold:
        cold.archive([make(7)])
        cold.close()
    cold.close()
    assert cold.get(7) == make(7)
    assert list(cold.refresh()) == []
    assert (cold.recovery.redone, cold.recovery.torn_bytes, list(cold.faults)) == ((), 0, [])


# -- history


def test_a_clock_that_goes_back_changes_no_order(cold: ColdStore, make: Make) -> None:
    for step_id, hour in ((1, "12"), (2, "09"), (3, "11")):
        cold.archive([make(step_id, folded_at=f"2026-01-02T{hour}:00:00Z")])
    assert [entry.step_id for entry in cold.recent(0)] == [1, 2, 3]
    assert cold.validate().faults == ()


def test_the_history_is_pinned_entry_by_entry(cold: ColdStore, make: Make) -> None:
    links = [cold.link_at(0)]
    for step_id in range(4):
        cold.archive([make(step_id)])
        links.append(cold.version.link)
    assert [cold.link_at(count) for count in range(5)] == links
    assert len(set(links)) == 5
    assert cold.link_at(9) is None
    assert [entry.step_id for entry in cold.recent(2)] == [2, 3]
    assert cold.version.epoch == 0


def test_a_forgotten_step_is_gone_and_known_again_by_its_mark(cold: ColdStore, make: Make) -> None:
    cold.archive([make(step_id) for step_id in range(4)])
    before = cold.version
    assert cold.forget([2, 7], at="2026-01-02T03:04:05Z") == [2]
    assert (set(cold.entries), len(cold.entries), 2 in cold.entries) == ({0, 1, 3}, 3, False)
    assert (cold.forgotten.known("key-2"), cold.forgotten.known("key-3")) == ((2,), ())
    assert cold.version.epoch > before.epoch
    assert cold.version.count == before.count, "its commitment stays"
    with pytest.raises(NodeNotFoundError):
        cold.get(2)
    audit = cold.validate()
    assert (audit.checked, audit.faults, audit.forgotten) == (3, (), (2,))
    cold.archive([make(4)])
    assert [entry.step_id for entry in cold.recent(0)] == [0, 1, 3, 4]


def test_a_new_projection_keeps_the_payload_and_shows_in_the_epoch(cold: ColdStore, make: Make) -> None:
    cold.archive([make(1), make(2)])
    again = make(1, identifiers=("other",))
    epoch = cold.version.epoch
    cold.reindex([again])
    assert cold.version.epoch > epoch
    assert cold.entries[1].identifiers == ("other",)
    assert (cold.get(1), len(cold.entries), cold.version.count) == (again, 2, 3)
    with pytest.raises(IntegrityCheckError, match="payload_sha256"):
        cold.reindex([make(2, b"another payload")])
    assert cold.validate().faults == ()
