"""The cover: worked cases, a naive oracle on thousands of random archives, and the three invariants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmu.cover import Pick, Selection, cover
from mmu.postings import DictPostings
from mmu.terms import extract, named_steps, prompt_terms

CASES = sorted((Path(__file__).parent.parent.parent / "fixtures" / "cover").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_worked_case_comes_out_as_written(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    postings = DictPostings()
    for step in case["steps"]:
        found = step.get("identifiers") or extract(step["summary"], step["payload"]).identifiers
        postings.add(step["step_id"], found, step.get("cost", 20))
    selection = cover(
        dict.fromkeys(prompt_terms(case["prompt"]), case.get("weight", 1)),
        postings,
        turn_budget=case.get("turn_budget", 3500),
        call_cap=case.get("call_cap", 3000),
        lam=case.get("lambda_permille", 0),
        excluded=case.get("excluded", ()),
        named=named_steps(case["prompt"]),
    )
    assert [pick.step_id for pick in selection.picks] == case["picks"], case["about"]
    assert [pick.step_id for pick in selection.dropped] == case["dropped"], case["about"]
    if "costs" in case:
        assert [pick.cost for pick in selection.picks] == case["costs"]


@dataclass(frozen=True)
class Archive:
    """A random archive and a prompt."""

    steps: Mapping[int, tuple[frozenset[str], int]]
    prompt: Mapping[str, int]
    budget: int
    cap: int
    lam: int
    excluded: frozenset[int]
    named: tuple[int, ...]

    def postings(self) -> DictPostings:
        made = DictPostings()
        for step_id, (terms, cost) in self.steps.items():
            made.add(step_id, terms, cost)
        return made

    def selection(self) -> Selection:
        return cover(
            self.prompt,
            self.postings(),
            turn_budget=self.budget,
            call_cap=self.cap,
            lam=self.lam,
            excluded=self.excluded,
            named=self.named,
        )


_TERMS = st.sampled_from("abcdefgh")


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    ids = draw(st.lists(st.integers(0, 60), unique=True, max_size=14))  # in any order
    steps = {i: (draw(st.frozensets(_TERMS, max_size=5)), draw(st.integers(0, 60))) for i in ids}
    weights = st.just(1) if draw(st.booleans()) else st.integers(1, 50)
    prompt = draw(st.dictionaries(_TERMS, weights, max_size=8))
    some_ids = st.sampled_from(ids or [0])
    return Archive(
        steps,
        prompt,
        draw(st.integers(-2, 150)),
        draw(st.integers(1, 60)),
        draw(st.sampled_from([0, 0, 400, 600, 999])),
        draw(st.frozensets(some_ids, max_size=4)),
        tuple(draw(st.lists(some_ids, max_size=2))),
    )


def oracle(archive: Archive, order: list[int] | None = None) -> Selection:
    """The rules read aloud, everything computed anew in each round. `order` gets picks and drops as they were chosen."""
    left, picks, dropped = archive.budget, [], []
    weights, blocked = dict(archive.prompt), dict.fromkeys(archive.prompt, -1)
    todo = [s for s in archive.steps if s not in archive.excluded]
    queue = [s for s in dict.fromkeys(archive.named) if s in todo]

    def terms(step: int) -> frozenset[str]:
        own = archive.steps[step][0]
        return frozenset(t for t in weights if t in own and step > blocked[t] and weights[t] > 0)

    def gain(step: int) -> int:
        return sum(weights[t] for t in terms(step))

    while left > 0:
        if queue:
            step = queue.pop(0)
        else:
            useful = [s for s in todo if gain(s) > 0]
            if not useful:
                break
            step = max(useful, key=lambda s: (gain(s), s))
        todo.remove(step)
        if order is not None:
            order.append(step)
        cost = min(archive.steps[step][1], archive.cap)
        if not picks:
            cost = min(cost, left)
        pick = Pick(step, terms(step), gain(step), cost)
        admitted = cost <= left
        (picks if admitted else dropped).append(pick)
        left -= cost if admitted else 0
        for term in archive.steps[step][0]:
            if term in weights:
                weights[term] = weights[term] * archive.lam // 1000
                if not admitted:
                    blocked[term] = max(blocked[term], step)
    return Selection(tuple(picks), tuple(dropped), max(left, 0))


def random_archive(dice: Random) -> Archive:
    ids = dice.sample(range(60), dice.randrange(15))
    steps = {i: (frozenset(dice.choices("abcdefgh", k=dice.randrange(6))), dice.randrange(61)) for i in ids}
    unit = dice.random() < 0.5
    prompt = {term: 1 if unit else dice.randrange(1, 50) for term in dice.sample("abcdefgh", dice.randrange(9))}
    return Archive(
        steps,
        prompt,
        dice.randrange(-2, 150),
        dice.randrange(1, 60),
        dice.choice([0, 0, 400, 600, 999]),
        frozenset(dice.sample(ids, min(len(ids), dice.randrange(4)))),
        tuple(dice.sample(ids, min(len(ids), dice.randrange(3)))),
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_cover_is_what_the_naive_oracle_says(seed: int) -> None:
    dice = Random(seed)
    for _ in range(1000):
        archive = random_archive(dice)
        assert archive.selection() == oracle(archive), archive


@settings(max_examples=200, deadline=None)
@given(archives())
def test_no_state_comes_in_while_a_newer_one_with_the_same_terms_stays_out(archive: Archive) -> None:
    selection = archive.selection()
    inside: set[int] = set()
    for pick in selection.picks:
        newer = {
            step
            for step, (terms, _) in archive.steps.items()
            if step > pick.step_id and step not in archive.excluded and pick.terms and pick.terms <= terms
        }
        if pick.step_id not in archive.named:
            assert newer <= inside, "ties go to the newest, and the newest state comes first"
        inside.add(pick.step_id)


@settings(max_examples=200, deadline=None)
@given(archives())
def test_a_term_of_a_dropped_pick_is_never_served_by_an_older_step(archive: Archive) -> None:
    selection, order = archive.selection(), list[int]()
    oracle(archive, order)
    for dropped in selection.dropped:
        carried = archive.steps[dropped.step_id][0]
        later = order[order.index(dropped.step_id) :]
        for pick in selection.picks:
            if pick.step_id in later and pick.step_id < dropped.step_id:
                assert not pick.terms & carried
