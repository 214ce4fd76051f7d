"""The value of a candidate (ipcf.md 5): a table of cases, and what holds for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

import pytest

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
