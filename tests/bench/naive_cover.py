"""The cover in a few dozen lines of dicts, sets and a heap: what the real one is checked against, and measured against."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from mmu.cover import Pick, Selection


class NaivePostings:
    """An index of dicts and sets, in memory."""

    def __init__(self) -> None:
        self.steps: dict[str, set[int]] = {}
        self.costs: dict[int, int] = {}

    def add(self, step_id: int, identifiers: Iterable[str], cost: int) -> None:
        """Index a step under its terms."""
        self.costs[step_id] = cost
        for term in identifiers:
            self.steps.setdefault(term, set()).add(step_id)


def naive_cover(
    prompt: Mapping[str, int],
    postings: NaivePostings,
    *,
    turn_budget: int,
    call_cap: int,
    lam: int = 0,
    excluded: Container[int] = (),
    named: Sequence[int] = (),
) -> Selection:
    """What `mmu.cover.cover` selects."""
    residual = _Residual(prompt, postings, lam, excluded)
    picks: list[Pick] = []
    dropped: list[Pick] = []
    left = max(turn_budget, 0)
    addressed = [step_id for step_id in dict.fromkeys(named) if step_id in postings.costs and step_id not in excluded]
    for step_id, terms, gain in residual.rounds(addressed):
        cost = min(postings.costs[step_id], call_cap)
        if not picks and turn_budget > 0:
            cost = min(cost, turn_budget)
        admitted = turn_budget > 0 and cost <= left
        if admitted:
            left -= cost
        (picks if admitted else dropped).append(Pick(step_id, terms, gain, cost))
        residual.settle(step_id, admitted)
    return Selection(tuple(picks), tuple(dropped), left)


class _Residual:
    """The weights that are still to be answered, and the candidates in the order in which they gain by them."""

    def __init__(self, prompt: Mapping[str, int], postings: NaivePostings, lam: int, excluded: Container[int]) -> None:
        self._lam = lam
        self._weights = dict(prompt)
        self._floors = dict.fromkeys(prompt, -1)  # a term counts only for steps newer than its newest drop
        self._carried: dict[int, list[str]] = {}
        for term in prompt:
            for step_id in postings.steps.get(term, ()):
                if step_id not in excluded:
                    self._carried.setdefault(step_id, []).append(term)

    def rounds(self, addressed: Sequence[int]) -> Iterator[tuple[int, frozenset[str], int]]:
        """Each candidate at most once, with the terms it gains by and its gain: the addressed ones, then always the best.

        `settle` is called between two of them, so gains fall on the way. A gain on the heap is therefore an upper bound, and
        who stands at the top with its true gain is the best.
        """
        for step_id in addressed:
            yield step_id, self._terms(step_id), self._gain(step_id)
        heap = [(-self._gain(group[-1]), -group[-1], group) for group in self._groups(frozenset(addressed))]
        heapq.heapify(heap)
        while heap:
            bound, _, group = heapq.heappop(heap)
            gain = self._gain(group[-1])
            if gain <= 0:
                continue  # nor does an older one of the group gain
            if gain == -bound:
                step_id = group.pop()
                yield step_id, self._terms(step_id), gain
            if group:
                heapq.heappush(heap, (-gain, -group[-1], group))

    def settle(self, step_id: int, admitted: bool) -> None:
        """The terms of a step count less from now on; if it was dropped, not at all for older ones: those are outdated."""
        for term in self._carried.get(step_id, ()):
            self._weights[term] = self._weights[term] * self._lam // 1000
            if not admitted:
                self._floors[term] = max(self._floors[term], step_id)

    def _groups(self, without: Container[int]) -> Iterable[list[int]]:
        """Candidates that carry the same terms, oldest first. Only the last of a group competes: no older one gains more."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for step_id in sorted(self._carried):
            if step_id not in without:
                groups.setdefault(tuple(self._carried[step_id]), []).append(step_id)
        return groups.values()

    def _gain(self, step_id: int) -> int:
        """What a step would add now: the weights of its terms that still count for it."""
        floors, weights = self._floors, self._weights
        return sum(weights[term] for term in self._carried.get(step_id, ()) if step_id > floors[term])

    def _terms(self, step_id: int) -> frozenset[str]:
        """The terms by which a step gains."""
        carried = self._carried.get(step_id, ())
        return frozenset(term for term in carried if step_id > self._floors[term] and self._weights[term] > 0)
