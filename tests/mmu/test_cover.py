"""The cover: worked cases, a naive oracle on thousands of random archives, and the three invariants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmu.cover import Pick, Selection, cover
from mmu.policy import HydrationPolicy
from mmu.postings import Index
from mmu.terms import extract, named_steps, prompt_terms

CASES = sorted((Path(__file__).parent.parent.parent / "fixtures" / "cover").glob("*.json"))
NEEDED = {"about", "steps", "prompt", "picks", "dropped"}
OPTIONAL = {"turn_budget", "call_cap", "lambda_permille", "weight", "excluded", "costs"}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_worked_case_comes_out_as_written(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    assert NEEDED <= case.keys() <= NEEDED | OPTIONAL, "a misspelt field would be a default"
    policy, postings = HydrationPolicy(), Index()
    for step in case["steps"]:
        found = step.get("identifiers") or extract(step["summary"], step["payload"]).identifiers
        postings.add(step["step_id"], found, step.get("cost", 20))
    selection = cover(
        dict.fromkeys(prompt_terms(case["prompt"]), case.get("weight", 1)),
        postings,
        turn_budget=case.get("turn_budget", policy.max_rehydration_tokens_per_turn),
        call_cap=case.get("call_cap", policy.max_rehydration_tokens_per_call),
        lam=case.get("lambda_permille", 0),
        excluded=case.get("excluded", ()),
        named=named_steps(case["prompt"]),
    )
    assert [pick.step_id for pick in selection.picks] == case["picks"], case["about"]
    assert [pick.step_id for pick in selection.dropped] == case["dropped"], case["about"]
    if "costs" in case:
        assert [pick.cost for pick in selection.picks] == case["costs"], case["about"]


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

    def postings(self) -> Index:
        made = Index()
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

    def newer(self, step_id: int) -> Iterator[tuple[int, frozenset[str]]]:
        """The candidates that are newer than a step, and the prompt's terms they carry."""
        for other, (terms, _) in self.steps.items():
            if other > step_id and other not in self.excluded:
                yield other, terms & self.prompt.keys()

    def turn_of(self, pick: Pick) -> tuple[int, int, int]:
        """Sorts picks and drops into the order in which they were chosen: named ones, then by gain, the newest first."""
        if pick.step_id in self.named:
            return 0, self.named.index(pick.step_id), 0
        return 1, -pick.gain, -pick.step_id


def random_archive(dice: Random) -> Archive:
    """Few terms and few steps, so that ties, supersets and drops are the rule."""
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
        tuple(dice.choices(ids, k=dice.randrange(4))) if ids else (),
    )


def archives() -> st.SearchStrategy[Archive]:
    """One draw makes a whole archive: drawn piece by piece they are slow to come and too sparse to tie."""
    return st.integers(0, 2**32).map(lambda seed: random_archive(Random(seed)))


def oracle(archive: Archive) -> Selection:
    """The rules read aloud, everything computed anew in each round."""
    left = max(archive.budget, 0)
    picks: list[Pick] = []
    dropped: list[Pick] = []
    weights, blocked = dict(archive.prompt), dict.fromkeys(archive.prompt, -1)
    todo = [s for s in archive.steps if s not in archive.excluded]
    queue = [s for s in dict.fromkeys(archive.named) if s in todo]

    def terms(step: int) -> frozenset[str]:
        own = archive.steps[step][0]
        return frozenset(t for t in weights if t in own and step > blocked[t] and weights[t] > 0)

    def gain(step: int) -> int:
        return sum(weights[t] for t in terms(step))

    while True:
        if queue:
            step = queue.pop(0)
        else:
            useful = [s for s in todo if gain(s) > 0]
            if not useful:
                break
            step = max(useful, key=lambda s: (gain(s), s))
        todo.remove(step)
        cost = min(archive.steps[step][1], archive.cap)
        if archive.budget > 0 and not picks:
            cost = min(cost, archive.budget)
        pick = Pick(step, terms(step), gain(step), cost)
        admitted = archive.budget > 0 and cost <= left
        (picks if admitted else dropped).append(pick)
        left -= cost if admitted else 0
        for term in archive.steps[step][0]:
            if term in weights:
                weights[term] = weights[term] * archive.lam // 1000
                if not admitted:
                    blocked[term] = max(blocked[term], step)
    return Selection(tuple(picks), tuple(dropped), left)


@pytest.mark.parametrize("seed", range(8))
def test_the_cover_is_what_the_naive_oracle_says(seed: int) -> None:
    dice = Random(seed)
    for _ in range(1000):
        archive = random_archive(dice)
        assert archive.selection() == oracle(archive), archive


@settings(max_examples=500, deadline=None)
@given(archives())
def test_of_steps_with_the_same_terms_the_newest_is_chosen_first(archive: Archive) -> None:
    selection = archive.selection()
    turns = {pick.step_id: archive.turn_of(pick) for pick in selection.picks + selection.dropped}
    for step_id, turn in turns.items():
        same = archive.steps[step_id][0] & archive.prompt.keys()
        for newer, carried in archive.newer(step_id):
            if carried == same and step_id not in archive.named:
                assert newer in turns, "an older one was chosen, this one was not"
                assert turns[newer] < turn


@settings(max_examples=500, deadline=None)
@given(archives())
def test_picks_and_drops_stand_in_the_order_of_their_gains_the_newest_first(archive: Archive) -> None:
    selection = archive.selection()
    assert list(selection.picks) == sorted(selection.picks, key=archive.turn_of)
    assert list(selection.dropped) == sorted(selection.dropped, key=archive.turn_of)


@settings(max_examples=500, deadline=None)
@given(archives())
def test_a_term_of_a_dropped_pick_is_never_served_by_an_older_step(archive: Archive) -> None:
    selection = archive.selection()
    for dropped in selection.dropped:
        carried = archive.steps[dropped.step_id][0]
        for pick in selection.picks + selection.dropped:
            if pick.step_id < dropped.step_id and archive.turn_of(pick) > archive.turn_of(dropped):
                assert not pick.terms & carried


@settings(max_examples=500, deadline=None)
@given(archives())
def test_no_state_comes_in_while_a_newer_one_with_the_same_terms_stays_out(archive: Archive) -> None:
    """A step that the prompt names is exempt: the user asked for that very state, and its label says that it is old."""
    inside: set[int] = set()
    for pick in archive.selection().picks:
        if pick.step_id not in archive.named:
            newer = {step_id for step_id, carried in archive.newer(pick.step_id) if pick.terms <= carried}
            assert newer <= inside, "the newest state comes first"
        inside.add(pick.step_id)


@settings(max_examples=500, deadline=None)
@given(archives())
def test_what_comes_in_never_takes_more_than_the_budget_and_one_step_never_more_than_a_call(archive: Archive) -> None:
    selection = archive.selection()
    assert sum(pick.cost for pick in selection.picks) + selection.left == max(archive.budget, 0)
    assert all(pick.cost <= archive.cap for pick in selection.picks + selection.dropped)


@settings(max_examples=500, deadline=None)
@given(archives(), st.randoms(use_true_random=False))
def test_the_order_in_which_steps_were_indexed_changes_nothing(archive: Archive, dice: Random) -> None:
    shuffled = list(archive.steps.items())
    dice.shuffle(shuffled)
    assert replace(archive, steps=dict(shuffled)).selection() == archive.selection()
