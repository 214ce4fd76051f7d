from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from mmu.postings import Postings


@dataclass(frozen=True, slots=True)
class Pick:
    step_id: int
    terms: frozenset[str]
    gain: int
    cost: int


@dataclass(frozen=True, slots=True)
class Selection:
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
    w = dict(prompt)
    cand: dict[int, set[str]] = {}
    for t in w:
        for s in postings.steps(t):
            if s not in excluded:
                cand.setdefault(s, set()).add(t)
    picks: list[Pick] = []
    dropped: list[Pick] = []
    left = turn_budget

    def take(s: int, terms: frozenset[str], gain: int) -> None:
        nonlocal left
        cost = min(postings.cost(s), call_cap)
        if not picks:
            cost = min(cost, left)
        if cost <= left:
            picks.append(Pick(s, terms, gain, cost))
            left -= cost
        else:
            dropped.append(Pick(s, terms, gain, cost))
        for t in cand.pop(s, set()):
            if t in w:
                w[t] = w[t] * lam // 1000
                if not w[t]:
                    del w[t]

    for s in named:
        if s in postings and s not in excluded:  # type: ignore
            ts = frozenset(t for t in cand.get(s, ()) if t in w)
            take(s, ts, sum(w[t] for t in ts))
    while cand:
        best = max(cand, key=lambda s: (sum(w.get(t, 0) for t in cand[s]), s))
        ts = frozenset(t for t in cand[best] if t in w)
        gain = sum(w[t] for t in ts)
        if not gain:
            break
        take(best, ts, gain)
    return Selection(tuple(picks), tuple(dropped), left)
