"""The index at every size and in every state, against the plain definition; segments, and what damage does to them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_cover import NaivePostings, naive_cover

from mmu.cover import cover
from mmu.errors import DamagedSegmentError
from mmu.postings import Index, planes, race, seal, sealed
from mmu.postings import segment as segments
from mmu.postings.bits import Count, places
from mmu.postings.segment import Segment, Stamp
from mmu.recall import Chronology, Ranked, chronology, tiers

Steps = dict[int, tuple[tuple[str, ...], int]]


@dataclass(frozen=True)
class Archive:
    """The same steps in an index and as they are."""

    index: Index
    steps: Steps
    words: Sequence[str]

    def naive(self) -> NaivePostings:
        made = NaivePostings()
        for step_id, (terms, cost) in self.steps.items():
            made.add(step_id, terms, cost)
        return made


def random_archive(dice: Random, tail: int, count: int, vocabulary: int) -> Archive:
    """Ids in any order, some steps added twice, some taken out; terms by Zipf's law."""
    index, steps = Index(tail), Steps()
    words = [f"t{number}" for number in range(vocabulary)]
    weights = [1 / (rank + 3) for rank in range(vocabulary)]
    ids = dice.sample(range(3 * count), count) if dice.random() < 0.5 else list(range(count))
    for step_id in ids:
        for _ in range(2 if dice.random() < 0.05 else 1):
            terms = tuple(set(dice.choices(words, weights, k=dice.randrange(1, 30))))
            steps[step_id] = terms, dice.randrange(400)
            index.add(step_id, *steps[step_id])
        if dice.random() < 0.03:
            gone = dice.choice(ids)
            index.remove(gone)
            steps.pop(gone, None)
    return Archive(index, steps, words)


def random_question(dice: Random, archive: Archive) -> dict[str, Any]:
    """Arguments of a cover: unit weights in most cases, any lambda, steps in view, named steps."""
    ids = sorted(archive.steps) or [0]
    asked = {dice.choice([*archive.words, "unheard"]) for _ in range(dice.choice([1, 3, 8, 40, 300]))}
    unit = dice.random() < 0.6
    return {
        "prompt": {term: 1 if unit else dice.choice([1, 5, 1000, dice.randrange(1, 3000)]) for term in sorted(asked)},
        "turn_budget": dice.choice([0, 300, 3500]),
        "call_cap": dice.choice([100, 3000]),
        "lam": dice.choice([0, 0, 400, 600, 900]),
        "excluded": set(dice.sample(ids, dice.choice([0, 1, min(30, len(ids)), len(ids) // 2]) % len(ids))),
        "named": dice.sample(ids, dice.choice([0, 0, 1])),
    }


@pytest.fixture(params=["numbers", "arrays", "narrow"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small archives take the way of large ones: counted over arrays, in narrow tables, with many planes."""
    if request.param != "numbers":
        monkeypatch.setattr(sealed, "SMALL", 0)
        monkeypatch.setattr(seal, "LEAST", 16)
    if request.param == "narrow":
        monkeypatch.setattr(race, "WIDTH", 3)
        monkeypatch.setattr(seal, "DENSITY", 4)
        monkeypatch.setattr(seal, "LEAST", 2)
        monkeypatch.setattr(seal, "CHUNK", 50)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(6))
def test_a_cover_over_any_index_is_the_naive_one(seed: int) -> None:
    dice = Random(seed)
    for _ in range(6):
        tail, count = dice.choice([(3, 30), (40, 300), (200, 1000), (1024, 300)])
        archive = random_archive(dice, tail, count, dice.choice([8, 60, 400, 3000]))
        naive = archive.naive()
        assert len(archive.index) == len(archive.steps)
        for _ in range(5):
            question = random_question(dice, archive)
            prompt = question.pop("prompt")
            assert cover(prompt, archive.index, **question) == naive_cover(prompt, naive, **question)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_cover_over_small_shards_is_the_naive_one(seed: int) -> None:
    dice = Random(seed)
    archive = random_archive(dice, 4, dice.randrange(1, 25), 9)
    question = random_question(dice, archive)
    prompt = question.pop("prompt")
    assert cover(prompt, archive.index, **question) == naive_cover(prompt, archive.naive(), **question)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("known", [255, 256, 500, 5000])
def test_a_prompt_may_know_any_number_of_terms_and_one_step_may_carry_them_all(known: int) -> None:
    words = [f"w{number}" for number in range(known)]
    index, naive, dice = Index(tail=60), NaivePostings(), Random(known)
    for step_id in range(200):
        terms = words if step_id in {70, 150} else dice.sample(words, 12)
        index.add(step_id, terms, 50)
        naive.add(step_id, terms, 50)
    for weight, lam in ((1, 0), (1000, 400)):
        prompt = dict.fromkeys(words, weight)
        options = {"turn_budget": 3500, "call_cap": 3000, "lam": lam, "excluded": {150}}
        assert cover(prompt, index, **options) == naive_cover(prompt, naive, **options)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(4))
def test_tiers_and_chronology_are_what_sets_say(seed: int) -> None:
    dice = Random(seed)
    archive = random_archive(dice, dice.choice([3, 50, 1024]), 200, dice.choice([6, 60]))
    for _ in range(20):
        asked = dice.sample([*archive.words, "unheard"], dice.randrange(1, 5))
        limit = dice.choice([None, 0, 1, 7, 500])
        assert tiers(asked, archive.index, limit) == naive_tiers(asked, archive.steps)[:limit]
        step_id = dice.choice(list(archive.steps))
        in_view, ignored = (set(dice.sample(sorted(archive.steps), dice.randrange(4))) for _ in range(2))
        found = chronology(step_id, asked, archive.index, in_view, ignored)
        assert found == naive_chronology(step_id, asked, archive.steps, in_view, ignored)


def naive_tiers(asked: Sequence[str], steps: Steps) -> tuple[Ranked, ...]:
    coverage = Counter({step_id: len(set(asked) & set(terms)) for step_id, (terms, _) in steps.items()})
    listed = sorted(((count, step_id) for step_id, count in coverage.items() if count), reverse=True)
    most = sum(count == listed[0][0] for count, _ in listed)

    def status(at: int) -> Any:
        if at >= most:
            return "related"
        return "latest_chronological" if at == 0 else "historical" if at == most - 1 else "superseded"

    return tuple(Ranked(step_id, status(at), count) for at, (count, step_id) in enumerate(listed))


def naive_chronology(
    step_id: int, asked: Sequence[str], steps: Steps, in_view: set[int], ignored: set[int]
) -> Chronology:
    others = {i for i, (terms, _) in steps.items() if set(asked) <= set(terms) and i != step_id} - ignored
    newer = {i for i in others if i > step_id}
    if newer & in_view:
        return Chronology("superseded", max(newer & in_view))
    if not newer:
        return Chronology("latest_chronological")
    return Chronology("superseded" if others - newer else "historical")


def test_planes_add_up_like_numbers() -> None:
    dice = np.random.default_rng(1)
    for sets in (0, 1, 2, 3, 4, 7, 30):
        dense = dice.random((sets, 150)) < 0.4
        given = [planes.plane_of(np.flatnonzero(row), 150) for row in dense]
        slices = planes.add([given, given[:2]], 3)
        counts = dense.sum(axis=0) + 2 * dense[:2].sum(axis=0)
        for least in range(1, 8):
            mask = planes.at_least(slices, least, None)
            found = [] if mask is None else planes.slots(mask).tolist()
            assert found == np.flatnonzero(counts >= least).tolist()
        most, mask = planes.top(slices, None)
        assert most == max(counts, default=0)
        if mask is not None:
            assert planes.slots(mask).tolist() == np.flatnonzero(counts == most).tolist()
            assert planes.size(mask) == np.count_nonzero(counts == most)


@given(st.lists(st.sets(st.integers(0, 70)), max_size=12))
def test_integers_add_up_like_numbers(sets: list[set[int]]) -> None:
    bits = [sum(1 << place for place in some) for some in sets]
    assert [set(places(some)) for some in bits] == sets
    count, left = Count(bits), list(sets)
    while left:
        counts = Counter(place for some in left for place in some)
        most = max(counts.values(), default=0)
        expected = {place for place, number in counts.items() if number == most}
        assert count.top(-1) == (most, sum(1 << place for place in expected))
        left.pop()
        count.subtract(bits[len(left)])
    assert count.top(-1) == (0, 0)


def test_a_tail_that_is_full_is_sealed_and_the_young_shard_joins_the_large_one() -> None:
    index = Index(tail=10)
    sizes = []
    for step_id in range(1000):
        index.add(step_id, [f"w{step_id % 7}", "all"], 5)
        sizes.append([len(shard) for shard in index.sealed])
    assert max(map(len, sizes)) == 2
    assert sizes[-1][0] > 800
    assert list(index.steps("all")) == list(range(1000))
    assert (index.cost(3), 999 in index, 1000 in index, "3" in index) == (5, True, False, False)
    with pytest.raises(KeyError):
        index.cost(1000)


def test_the_order_in_which_steps_came_does_not_show_in_a_segment() -> None:
    dice = Random(2)
    rows = [(i, [f"w{dice.randrange(30)}" for _ in range(5)], i) for i in dice.sample(range(500), 200)]
    whole = seal.of_steps(rows, Stamp())
    assert whole == seal.of_steps(sorted(rows), Stamp())
    parts = [(Segment(seal.of_steps(rows[at::3], Stamp())), ()) for at in range(3)]
    assert seal.merged(parts, Stamp()) == whole
    gone = [(*parts[0][:1], [0, 2]), *parts[1:]]
    left_out = {int(parts[0][0].ids[slot]) for slot in (0, 2)}
    assert seal.merged(gone, Stamp()) == seal.of_steps([row for row in rows if row[0] not in left_out], Stamp())


def test_terms_whose_digests_agree_by_half_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    real = segments.digest
    monkeypatch.setattr(segments, "digest", lambda term: b"sameHalf" + real(term)[8:])
    monkeypatch.setattr(seal, "digest", lambda term: b"sameHalf" + real(term)[8:])
    index = Index(tail=5)
    for step_id in range(23):
        index.add(step_id, [f"w{step_id}", "all"], 1)
    assert [list(index.steps(f"w{step_id}")) for step_id in range(23)] == [[step_id] for step_id in range(23)]
    assert (list(index.steps("all")), list(index.steps("none"))) == (list(range(23)), [])


def test_words_of_any_letters_are_indexed() -> None:
    index = Index(tail=2)
    words = ["ışık", "\ud800", "汉字", "\0", ""]
    for step_id in range(4):
        index.add(step_id, words, 1)
    assert [list(index.steps(word)) for word in words] == [[0, 1, 2, 3]] * 5


def test_every_damaged_byte_is_noticed_when_it_is_read() -> None:
    rows = [(i, [f"w{i % 5}", f"x{i}"], i) for i in range(300)]
    whole = bytes(seal.of_steps(rows, Stamp()))
    pristine = Segment(whole)
    dice = Random(3)
    for at in [*range(0, 600, 7), *dice.sample(range(len(whole)), 300)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << dice.randrange(8)
        try:
            segment = Segment(damaged)
            segment.check_all()
        except DamagedSegmentError as error:
            assert "built anew" in str(error)
            continue
        names = (*segments.SECTIONS, "checks")
        held = any(pristine._places[n][0] <= at < sum(pristine._places[n]) for n in names)
        assert not held, f"byte {at} changed unnoticed"


@pytest.mark.parametrize("size", [0, 5, 16, 200, -1])
def test_a_segment_that_was_cut_is_damaged(size: int) -> None:
    whole = seal.of_steps([(1, ["w"], 1)], Stamp())
    with pytest.raises(DamagedSegmentError):
        Segment(whole[:size])


def test_a_short_session_loads_no_numpy() -> None:
    code = (
        "import sys; from mmu.postings import Index; from mmu.cover import cover; from mmu.recall import tiers\n"
        "index = Index()\n"
        "for i in range(900): index.add(i, ['word', f'w{i % 9}'], 3)\n"
        "cover({'word': 1, 'w3': 2}, index, turn_budget=9, call_cap=9, lam=500); tiers(['word'], index)\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
