"""Residual greedy set cover: which archived steps answer a prompt within a budget (seed 4.1, ipcf.md 6).

Three things hold whatever the weights and lambda are: ties go to the newest step; a term of a dropped pick is never served
by an older step; no step comes in for terms that a newer candidate carries as well, unless that one is in. The last does not
hold for a step that the prompt names: that very state was asked for, and its label says that it is old.

Each shard of the index races its own candidates (`Race`); the cover takes the best of their best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmu.postings import Postings


@dataclass(frozen=True, slots=True)
class Pick:
    """One chosen step, and what it was chosen for.

    `terms` are the prompt's terms it gained by at that moment, and `gain` the sum of their weights; a step that the prompt
    names comes without any if it carries none. `cost`: the tokens it may take, at most the cap of a call.
    """

    step_id: int
    terms: frozenset[str]
    gain: int
    cost: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Picks in the order in which they were chosen, those that found no room, and what is left of the budget (tokens)."""

    picks: tuple[Pick, ...]
    dropped: tuple[Pick, ...]
    left: int


def cover(
    prompt: Mapping[str, int],
    postings: Postings,
    *,
    turn_budget: int,
    call_cap: int,
    lam: int = 0,
    excluded: Collection[int] = (),
    named: Sequence[int] = (),
) -> Selection:
    """Choose steps for a prompt, given as terms with integer weights above 0, in sum below 2**61 (ipcf.md 6).

    Each round takes the step with the highest gain, the sum of the weights of its residual terms; the newest on a tie. The
    first is admitted in any case, bounded to `turn_budget` tokens; a later one if its cost, at most `call_cap` tokens, still
    fits. Admitted or dropped, the weights of its terms become `weight * lam // 1000` (`lam` is 0 to 999). Steps in
    `excluded` are in view and no candidates; steps in `named` are addressed by the prompt and come first. With a budget of
    0 or less nothing is admitted: all that would be chosen is in `dropped`.
    """
    residual = _Residual(prompt, postings, lam, excluded)
    picks: list[Pick] = []
    dropped: list[Pick] = []
    left = max(turn_budget, 0)
    addressed = [step_id for step_id in dict.fromkeys(named) if step_id in postings and step_id not in excluded]
    for step_id, terms, gain, tokens in residual.rounds(addressed):
        cost = min(tokens, call_cap)
        if not picks and turn_budget > 0:
            cost = min(cost, turn_budget)
        admitted = turn_budget > 0 and cost <= left
        if admitted:
            left -= cost
        (picks if admitted else dropped).append(Pick(step_id, terms, gain, cost))
        residual.settle(step_id, admitted)
    return Selection(tuple(picks), tuple(dropped), left)


class _Residual:
    """The weights that are still to be answered, and the races of the shards for them."""

    def __init__(self, prompt: Mapping[str, int], postings: Postings, lam: int, excluded: Collection[int]) -> None:
        self._lam = lam
        self._weights = dict(prompt)
        self._floors = dict.fromkeys(prompt, -1)  # a term counts only for steps newer than its newest drop
        self._carried: Collection[str] = ()
        # If all terms count the same and nothing is left of what is answered, counting terms is enough.
        self._once = len(set(prompt.values())) <= 1 and all(weight * lam < 1000 for weight in prompt.values())
        started = postings.races(prompt, excluded, once=self._once)
        self._shards, self._races = [shard for shard, _ in started], [race for _, race in started]

    def rounds(self, addressed: Sequence[int]) -> Iterator[tuple[int, frozenset[str], int, int]]:
        """Each candidate at most once, with the terms it gains by, its gain, and its tokens: the addressed ones, then always
        the best.

        `settle` is called between two of them, so gains fall on the way.
        """
        for step_id in addressed:
            yield self._taken(next(at for at, shard in enumerate(self._shards) if step_id in shard), step_id)
        while self._races:
            bests = [race.best() for race in self._races]
            gain, step_id = best = max(bests)
            if gain <= 0:
                return
            yield self._taken(bests.index(best), step_id)

    def settle(self, step_id: int, admitted: bool) -> None:
        """The terms of a step count less from now on; if it was dropped, not at all for older ones: those are outdated."""
        now = {term: self._weights[term] * self._lam // 1000 for term in self._carried}
        self._weights.update(now)
        if not admitted:
            for term in now:
                self._floors[term] = max(self._floors[term], step_id)
        for race in self._races:
            race.settle(now, None if admitted else step_id)

    def _taken(self, at: int, step_id: int) -> tuple[int, frozenset[str], int, int]:
        """A step of a shard, the terms by which it gains, the gain (the weights of its terms that still count for it), and
        its tokens."""
        carried = self._carried = self._races[at].take(step_id)
        weights, tokens = self._weights, self._shards[at].cost(step_id)
        if self._once:  # a term that was answered is not carried any more, so none of these has a floor
            return step_id, frozenset(carried), sum([weights[term] for term in carried]), tokens
        terms = frozenset(term for term in carried if step_id > self._floors[term] and weights[term] > 0)
        return step_id, terms, sum(weights[term] for term in terms), tokens
