"""The value of a candidate (ipcf.md 5): a table of cases, and what holds for all of them."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmu import value
from mmu.terms import compose
from mmu.value import value_after


class Case(TypedDict):
    about: str
    query: str
    summary: str
    rendering: str
    value: str | None


CASES: list[Case] = json.loads((Path(__file__).parents[2] / "fixtures/recall/value.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_each_case_of_the_table_gives_its_value(case: Case) -> None:
    assert value_after(case["query"], (case["summary"], case["rendering"])) == case["value"]


def test_the_table_has_forty_cases_of_many_kinds() -> None:
    assert len({case["about"] for case in CASES}) == 40


@given(st.text(max_size=40), st.lists(st.text(max_size=80), max_size=2))
@settings(max_examples=50, deadline=None)
def test_any_query_and_texts_will_do(query: str, texts: list[str]) -> None:
    found = value_after(query, texts)
    assert found is None or any(found in compose(text) for text in texts)


@given(
    st.lists(
        st.sampled_from(
            ["relay", "port", "8931", "to", "v2.1", '"a b"', "src/x.py", ".", "\n", "x_y", "port:", "端口"]
        ),
        max_size=12,
    )
)
@settings(deadline=None)
def test_a_value_is_a_literal_behind_the_last_match(words: list[str]) -> None:
    text = " ".join(words)
    found = value_after("relay port", (text,))
    last_match = max(text.rfind("relay"), text.rfind("port"))
    assert found is None or found in text[last_match:]


@pytest.mark.parametrize(
    "text",
    ["the port is open " * 60_000, "report 1\n" * 20_000, "'a port\"" * 60_000, "port /" * 15_000, "1:" * 100_000],
)
def test_reading_ends_on_any_long_text(text: str) -> None:
    assert value_after("relay port", ("", text)) in {None, "'a port", "/port"}


def test_the_sixth_word_is_within_reach_and_the_seventh_is_not() -> None:
    assert value_after("relay port", ("relay port one two three four five 8931",)) == "8931"
    assert value_after("relay port", ("relay port one two three four five six 8931",)) is None


def test_the_summary_answers_before_the_rendering() -> None:
    assert value_after("relay port", ("relay port 8931", "relay port 8932")) == "8931"


def test_a_part_of_a_word_is_no_match() -> None:
    assert value_after("res port", ("Port 8931 is free. Restored 12 tables",)) == "8931"


def test_a_url_is_one_literal_whatever_stands_in_it() -> None:
    url = "https://staging.example.org:8443/a/b/c.html"
    assert value_after("staging address", (f"Staging address: {url}.",)) == url


def test_a_question_in_a_script_without_blanks_asks_for_a_kind() -> None:
    assert value_after("queueの名前", ("queueは「請求イベント」12",)) == "請求イベント"


def test_a_null_is_not_answered_with_the_next_key() -> None:
    assert value_after("grpc port", ('{"port": null, "workers": 4}',)) is None


def test_words_inside_a_quoted_text_are_read_if_nothing_else_answers() -> None:
    assert value_after("relay port", ('> write {"text": "set the relay port to 8931 today"}',)) == "8931"


def test_no_word_of_the_seeds_examples_stands_in_the_code() -> None:
    source = set(re.findall(r"\w+", inspect.getsource(value).casefold()))
    assert not source & {"port", "postgresql", "postgres", "5433", "5434", "migration", "billing", "v12", "jwt", "auth"}
