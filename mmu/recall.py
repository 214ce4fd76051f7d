"""Where steps stand in time: the tiers of an explicit query, and the label of a step that comes back (seed 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Literal

from mmu.postings import Postings

Status = Literal["latest_chronological", "superseded", "historical", "related"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A step that carries `coverage` distinct terms of a query, and its place among the others."""

    step_id: int
    status: Status
    coverage: int


@dataclass(frozen=True, slots=True)
class Chronology:
    """A step's place among all that carry the same terms. `newer_in_view`: the newest of them that the prompt shows."""

    status: Status
    newer_in_view: int | None = None


def tiers(query_terms: Collection[str], postings: Postings) -> tuple[Ranked, ...]:
    """The steps that carry a query's terms. Those with the most of them come first, newest first: the newest is
    `latest_chronological`, the oldest `historical`, those between `superseded`. The others are `related`."""
    coverage = Counter(step_id for term in set(query_terms) for step_id in postings.steps(term))
    most = max(coverage.values(), default=0)
    primary = sorted((step_id for step_id, count in coverage.items() if count == most), reverse=True)
    ranked = [Ranked(step_id, _status(at, len(primary)), most) for at, step_id in enumerate(primary)]
    rest = sorted(((count, step_id) for step_id, count in coverage.items() if count < most), reverse=True)
    return (*ranked, *(Ranked(step_id, "related", count) for count, step_id in rest))


def _status(place: int, of: int) -> Status:
    """The status at a place, newest first."""
    if place == 0:
        return "latest_chronological"
    return "historical" if place == of - 1 else "superseded"


def chronology(
    step_id: int,
    terms: Collection[str],
    postings: Postings,
    in_view: Container[int] = (),
    ignored: Container[int] = (),
) -> Chronology:
    """Where a step stands among all indexed steps, in view or not, that carry every one of `terms`.

    A newer one in view makes the step `superseded`: nothing archived is then the latest. Steps in `ignored` (the message
    that asks) hold no state. Without terms the step stands alone, as the latest (seed 4.1, ipcf.md 6).
    """
    carriers = [set(postings.steps(term)) for term in terms]
    others = [s for s in set.intersection(*carriers) if s != step_id and s not in ignored] if carriers else []
    newer = [other for other in others if other > step_id]
    shown = max((other for other in newer if other in in_view), default=None)
    if shown is not None:
        return Chronology("superseded", shown)
    return Chronology(_status(len(newer), len(others) + 1))
