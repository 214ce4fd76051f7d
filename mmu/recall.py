from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Literal

from mmu.postings import Postings

Status = Literal["latest_chronological", "superseded", "historical", "related"]


@dataclass(frozen=True, slots=True)
class Ranked:
    step_id: int
    status: Status
    coverage: int


@dataclass(frozen=True, slots=True)
class Chronology:
    status: Status
    newer_in_view: int | None


def tiers(query_terms: Collection[str], postings: Postings) -> tuple[Ranked, ...]:
    counts: dict[int, int] = {}
    for t in set(query_terms):
        for s in postings.steps(t):
            counts[s] = counts.get(s, 0) + 1
    if not counts:
        return ()
    top = max(counts.values())
    prim = sorted((s for s, c in counts.items() if c == top), reverse=True)
    out = []
    for i, s in enumerate(prim):
        st: Status = "latest_chronological" if i == 0 else "historical" if i == len(prim) - 1 else "superseded"
        out.append(Ranked(s, st, top))
    rest = sorted(((c, s) for s, c in counts.items() if c < top), reverse=True)
    return (*out, *(Ranked(s, "related", c) for c, s in rest))


def chronology(step_id: int, terms: Collection[str], postings: Postings, in_view: Container[int] = ()) -> Chronology:
    group: set[int] | None = None
    for t in terms:
        group = set(postings.steps(t)) if group is None else group & set(postings.steps(t))
    g = sorted(group or {step_id}, reverse=True)
    newer = [s for s in g if s > step_id and s in in_view]
    if newer:
        return Chronology("superseded", newer[0])
    if g[0] == step_id:
        return Chronology("latest_chronological", None)
    return Chronology("historical" if g[-1] == step_id else "superseded", None)
