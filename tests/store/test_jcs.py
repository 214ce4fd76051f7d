"""The canonical form against a full RFC 8785 implementation, and what the three hashes cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from store import PROJECTION_VERSION, ColdNode, InvalidNodeError, canonical, canonical_sha256, encode_text, sha256_hex

Make = Callable[..., ColdNode]

# -- the domain: strings of well-formed text, integers below 2**53, booleans, null, lists, objects with ASCII keys

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    st.sampled_from('\0\x01\x1f\x7f\x80\u2028\u2029\ud7ff\ue000\uffff\U00010000\U0010ffff"\\/\b\t\n\f\r')
)
keys = st.text(st.characters(max_codepoint=127), max_size=8)
integers = st.integers(-(2**53) + 1, 2**53 - 1)
values = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=30,
)


@given(values)
@settings(max_examples=150, deadline=None)
def test_the_canonical_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(keys, integers, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_keys_makes_no_difference(value: dict[str, int], chance: Any) -> None:
    shuffled = list(value.items())
    chance.shuffle(shuffled)
    assert canonical(dict(shuffled)) == canonical(value)


@pytest.mark.parametrize(
    "code_point", [*range(0x20), 0x22, 0x5C, 0x2F, 0x7F, 0x80, 0x2028, 0x2029, 0xFEFF, 0xFFFF, 0x1F389]
)
def test_every_character_that_json_may_escape_is_written_as_rfc_8785_does(code_point: int) -> None:
    text = f"a{chr(code_point)}b"
    assert canonical([text]) == rfc8785.dumps([text])
    if code_point < 128:
        assert canonical({text: 1}) == rfc8785.dumps({text: 1})


def test_a_tuple_is_a_list() -> None:
    assert canonical({"a": ("x", 1)}) == canonical({"a": ["x", 1]}) == b'{"a":["x",1]}'


OUTSIDE: dict[str, Any] = {
    "a float": 1.5,
    "a float that is whole": 1.0,
    "minus zero": -0.0,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "2**53": 2**53,
    "-2**53": -(2**53),
    "an integer beyond 64 bits": 2**80,
    "bytes": b"x",
    "a set": {1},
    "an object": object(),
    "a lone surrogate": "\ud800",
    "a surrogate pair in two halves": "\ud83c\udf89",
    "a key beyond ASCII": {"ı": 1},
    "a key beyond U+FFFF": {"🎉": 1},
    "a key that is a surrogate": {"\udc00": 1},
    "a key that is a number": {1: 1},
    "a key that is null": {None: 1},
}


@pytest.mark.parametrize("value", OUTSIDE.values(), ids=OUTSIDE.keys())
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: ["a", [v]], lambda v: {"a": {"b": (v,)}}])
def test_a_value_outside_the_domain_is_refused_wherever_it_stands(value: Any, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidNodeError):
        canonical(wrap(value))
    with pytest.raises(InvalidNodeError):
        canonical_sha256(wrap(value))


def test_an_error_names_the_place_of_the_value() -> None:
    with pytest.raises(InvalidNodeError, match=r"value\.a\[1\]\.b: float"):
        canonical({"a": [0, {"b": 0.5}]})


# -- the three hashes

EIGHT = {
    "projection_version",
    "step_id",
    "normalized_content",
    "identifiers",
    "files",
    "commands",
    "errors",
    "folding_policy_hash",
}

PROJECTED: dict[str, dict[str, Any]] = {
    "projection_version": {"projection_version": "mmu-projection-2"},
    "step_id": {"step_id": 138},
    "normalized_content": {"rendering": "PostgreSQL port 5433"},
    "identifiers": {"identifiers": ("5433",)},
    "files": {"files": ("config.env", "b.env")},
    "commands": {"commands": ()},
    "errors": {"errors": ("Timeout",)},
    "folding_policy_hash": {"folding_policy_hash": "cd" * 32},
}

NOT_PROJECTED: dict[str, dict[str, Any]] = {
    "session": {"session": "another"},
    "payload": {"payload": b"as it came", "rendering": "PostgreSQL port 5434 reverted back to Port 5433"},
    "payload_kind": {"payload_kind": "messages"},
    "summary": {"summary": "told otherwise"},
    "timestamp": {"timestamp": ""},
    "folded_at": {"folded_at": "2030-01-01T00:00:00Z"},
    "tokens": {"tokens": 121},
    "match_key": {"match_key": "other"},
    "messages": {"messages": 2},
    "sanitized": {"sanitized": {}},
    "cut": {"cut": 5},
}


def test_the_projection_hash_of_a_fixed_step_never_changes() -> None:
    node = ColdNode.build(
        session="golden",
        step_id=137,
        payload_kind="text",
        payload="İş: PostgreSQL port 5434 reverted back to Port 5433 🎉 \n".encode(),
        rendering="I\u0307ş: PostgreSQL port 5434 reverted back to Port 5433 🎉 \n",
        identifiers=("postgresql", "5433", "5434", "iş"),
        files=("b.env", "a.env"),
        commands=("sed",),
        errors=("DeadlockDetected",),
        folding_policy_hash="0" * 64,
    )
    assert PROJECTION_VERSION == "mmu-projection-1"
    assert node.projection_sha256 == "6a9b1ea86ea2fe47b16d0617d49fb6cb6453f9d0d72ed080b6bf96070c63ef11"
    assert node.payload_sha256 == "90836428b8d6056e614947392a4734a850d36cf7f95e04a935fb59b6764678b4"


def test_the_projection_has_exactly_the_eight_fields_of_the_specification(make: Make) -> None:
    assert set(make(137).projection()) == EIGHT
    assert make(137).projection_sha256 == sha256_hex(rfc8785.dumps(make(137).projection()))


def test_each_field_of_a_node_is_either_projected_or_known_not_to_be() -> None:
    hashes = {"payload_sha256", "projection_sha256", "artifact_sha256"}
    assert {f.name for f in fields(ColdNode)} - hashes == (EIGHT - {"normalized_content"}) | {
        "rendering",
        *NOT_PROJECTED,
    }


@pytest.mark.parametrize("changes", PROJECTED.values(), ids=PROJECTED.keys())
def test_a_change_of_one_of_the_eight_changes_the_projection(make: Make, changes: dict[str, Any]) -> None:
    before, after = make(137), make(**{"step_id": 137, **changes})
    assert after.projection_sha256 != before.projection_sha256
    assert after.artifact_sha256 != before.artifact_sha256
    assert after.payload_sha256 == before.payload_sha256


@pytest.mark.parametrize("changes", NOT_PROJECTED.values(), ids=NOT_PROJECTED.keys())
def test_a_change_of_anything_else_leaves_the_projection_as_it_was(make: Make, changes: dict[str, Any]) -> None:
    before, after = make(137), make(137, **changes)
    assert after.projection_sha256 == before.projection_sha256
    assert after.artifact_sha256 != before.artifact_sha256
    assert (after.payload_sha256 == before.payload_sha256) == ("payload" not in changes)


@pytest.mark.parametrize("name", ["identifiers", "files", "commands", "errors"])
def test_the_order_in_which_terms_were_found_leaves_the_projection_as_it_was(make: Make, name: str) -> None:
    one, two = make(137, **{name: ("b", "a", "ç", "Z")}), make(137, **{name: ("Z", "ç", "b", "a")})
    assert one.projection_sha256 == two.projection_sha256
    assert one.projection()[name] == ["Z", "a", "b", "ç"]


@pytest.mark.parametrize(
    ("one", "two"), [("cafe\u0301", "café"), ("text", "text \t\r\n\n"), ("İ", "I\u0307"), ("a\r\nb", "a\r\nb\u2003")]
)
def test_composed_form_and_white_space_at_the_end_leave_the_projection_as_it_was(
    make: Make, one: str, two: str
) -> None:
    assert make(1, rendering=one).projection_sha256 == make(1, rendering=two).projection_sha256
    assert make(1, rendering=one).artifact_sha256 != make(1, rendering=two).artifact_sha256


@pytest.mark.parametrize(
    ("one", "two"), [(" text", "text"), ("a  b", "a b"), ("a\r\nb", "a\nb"), ("A", "a"), ("ﬁ", "fi")]
)
def test_nothing_else_of_the_rendering_is_normalized(make: Make, one: str, two: str) -> None:
    assert make(1, rendering=one).projection_sha256 != make(1, rendering=two).projection_sha256


@given(st.binary(max_size=200), texts)
def test_the_payload_hash_is_that_of_the_bytes_and_of_nothing_else(make: Make, payload: bytes, other: str) -> None:
    one = make(1, payload)
    two = make(2, payload, rendering=other, summary=other, payload_kind="bytes", session="s", folded_at="", files=())
    assert one.payload_sha256 == two.payload_sha256 == sha256_hex(payload)


@given(
    payload=st.binary(max_size=200) | texts.map(encode_text),
    rendering=texts,
    summary=texts,
    terms=st.lists(texts, max_size=4),
)
@settings(deadline=None)
def test_a_node_reads_back_from_its_bytes_as_it_was(
    make: Make, payload: bytes, rendering: str, summary: str, terms: list[str]
) -> None:
    node = make(1, payload, rendering=rendering, summary=summary, identifiers=tuple(terms))
    assert ColdNode.from_bytes(node.to_bytes()) == node
    assert node.to_bytes() == rfc8785.dumps(node.document())


@pytest.mark.parametrize(
    "changes",
    [
        {"rendering": "half \ud83d"},
        {"summary": "\udc00"},
        {"tokens": 1.5},
        {"payload_kind": "xml"},
        {"sanitized": {"ı": 1}},
    ],
)
def test_a_node_that_no_file_could_hold_is_not_built(make: Make, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidNodeError):
        make(1, **changes)
