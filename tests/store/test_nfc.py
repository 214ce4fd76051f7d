"""Normalization in linear time, to the same text."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from store import nfc

MARKS = "\u0301\u0323\u0344\u0f73\u0f75\u0f81\u0307\u0338\u3099\u094d"


@given(st.lists(st.tuples(st.sampled_from(["", "a", "e\u0301", "\uac00", "か", "😀"]), st.text(MARKS, max_size=150))))
def test_it_is_unicodes_own_form(parts: list[tuple[str, str]]) -> None:
    text = "".join(base + marks for base, marks in parts)
    assert nfc(text) == unicodedata.normalize("NFC", text)


def test_a_hundred_thousand_marks_out_of_order_are_no_matter() -> None:
    """The library's own way takes minutes for this."""
    text = nfc("a" + "\u0301" * 100_000 + "\u0323" * 100_000)
    assert text == "\u1ea1" + "\u0323" * 99_999 + "\u0301" * 100_000
