"""Residual greedy set cover: which archived steps answer a prompt within a budget (seed 4.1, ipcf.md 6).

Three things hold whatever the weights and lambda are: ties go to the newest step; a term of a dropped pick is never served
by an older step; no step comes in for terms that a newer candidate carries as well, unless that one is in.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmu.postings import Postings


@dataclass(frozen=True, slots=True)
class Pick:
    """One chosen step, the residual terms it was taken for (none if the prompt named it), their weight, its tokens."""

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
    excluded: Container[int] = (),
    named: Sequence[int] = (),
) -> Selection:
    """Choose steps for a prompt, given as terms with integer weights above 0.

    Each round takes the step with the highest gain, the sum of the weights of its residual terms; the newest on a tie. The
    first is admitted in any case, bounded to `turn_budget`; a later one if its cost, at most `call_cap`, still fits.
    Admitted or dropped, the weights of its terms become `weight * lam // 1000`. Steps in `excluded` are in view and no
    candidates; steps in `named` are addressed by the prompt and come first. Without a budget nothing is chosen.
    """
    residual = _Residual(prompt, postings, lam, excluded)
    picks: list[Pick] = []
    dropped: list[Pick] = []
    left = turn_budget
    addressed = [step_id for step_id in dict.fromkeys(named) if step_id in postings and step_id not in excluded]
    for step_id, terms, gain in residual.rounds(addressed):
        if left <= 0:
            break
        cost = min(postings.cost(step_id), call_cap)
        if not picks:
            cost = min(cost, left)
        pick = Pick(step_id, terms, gain, cost)
        if cost <= left:
            picks.append(pick)
            left -= cost
            residual.answered(pick)
        else:
            dropped.append(pick)
            residual.refused(pick)
    return Selection(tuple(picks), tuple(dropped), max(left, 0))


class _Residual:
    """The weights that are still to be answered, and what each candidate would gain by them."""

    def __init__(self, prompt: Mapping[str, int], postings: Postings, lam: int, excluded: Container[int]) -> None:
        self._lam = lam
        self._weights = dict(prompt)
        self._carriers = {term: [s for s in postings.steps(term) if s not in excluded] for term in prompt}
        self._floors: dict[str, int] = {}  # a term counts only for steps newer than a dropped one that carried it
        self._gains: dict[int, int] = {}
        self._terms: dict[int, list[str]] = {}
        for term, weight in prompt.items():
            for step_id in self._carriers[term]:
                self._gains[step_id] = self._gains.get(step_id, 0) + weight
                self._terms.setdefault(step_id, []).append(term)

    def rounds(self, addressed: Iterable[int]) -> Iterable[tuple[int, frozenset[str], int]]:
        """Candidates one by one: the addressed ones, then always the best. Gains may fall between two of them."""
        for step_id in addressed:
            yield step_id, self._residual_terms(step_id), self._gains.pop(step_id, 0)
        heap = [(-gain, -step_id) for step_id, gain in self._gains.items()]
        heapq.heapify(heap)
        while heap:
            stale, negative = heapq.heappop(heap)
            step_id = -negative
            gain = self._gains[step_id]
            if gain <= 0:
                continue
            if gain != -stale:  # gains only fall: what stands at the top with its true gain is the best
                heapq.heappush(heap, (-gain, negative))
                continue
            terms = self._residual_terms(step_id)
            del self._gains[step_id]
            yield step_id, terms, gain

    def _residual_terms(self, step_id: int) -> frozenset[str]:
        return frozenset(term for term in self._terms.get(step_id, ()) if self._weight(term, step_id) > 0)

    def _weight(self, term: str, step_id: int) -> int:
        return self._weights[term] if step_id > self._floors.get(term, -1) else 0

    def answered(self, pick: Pick) -> None:
        """The terms of an admitted pick count less from now on."""
        for term in self._terms.get(pick.step_id, ()):
            self._change(term, self._weights[term] * self._lam // 1000, self._floors.get(term, -1))

    def refused(self, pick: Pick) -> None:
        """The terms of a dropped pick count less, and not at all for steps older than it: those are outdated."""
        for term in self._terms.get(pick.step_id, ()):
            floor = max(pick.step_id, self._floors.get(term, -1))
            self._change(term, self._weights[term] * self._lam // 1000, floor)

    def _change(self, term: str, weight: int, floor: int) -> None:
        before = {step_id: self._weight(term, step_id) for step_id in self._carriers[term] if step_id in self._gains}
        self._weights[term], self._floors[term] = weight, floor
        for step_id, old in before.items():
            self._gains[step_id] -= old - self._weight(term, step_id)
