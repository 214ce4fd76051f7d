"""Where steps stand in time: the tiers of an explicit query, and the label of a step that comes back (seed 4.1)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container
from dataclasses import dataclass
from itertools import chain, groupby
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


def tiers(query_terms: Collection[str], postings: Postings, limit: int | None = None) -> tuple[Ranked, ...]:
    """The steps that carry a query's terms, the first `limit` of them (None: all).

    Those with the most terms come first, newest first: the newest is `latest_chronological`, the oldest `historical`, those
    between `superseded`. The others are `related`.
    """
    terms = set(query_terms)
    groups = groupby(
        heapq.merge(*(shard.levels(terms) for shard in postings.shards()), key=lambda level: -level[0]),
        key=lambda level: level[0],
    )
    ranked: list[Ranked] = []
    for count, parts in groups:
        first = not ranked
        lists = [ids for _, ids in parts]
        left = sum(map(len, lists)) if limit is None else max(limit - len(ranked), 0)
        newest = sorted(chain.from_iterable(ids[max(len(ids) - left, 0) :] for ids in lists), reverse=True)[:left]
        of = sum(map(len, lists))
        ranked += [Ranked(i, _status(at, of) if first else "related", count) for at, i in enumerate(newest)]
        if limit is not None and len(ranked) >= limit:
            break
    return tuple(ranked)


def _status(place: int, of: int) -> Status:
    """The status at a place, newest first."""
    if place == 0:
        return "latest_chronological"
    return "historical" if place == of - 1 else "superseded"


def chronology(
    step_id: int,
    terms: Collection[str],
    postings: Postings,
    in_view: Collection[int] = (),
    ignored: Container[int] = (),
) -> Chronology:
    """Where a step stands among all indexed steps, in view or not, that carry every one of `terms`.

    A newer one in view makes the step `superseded`: nothing archived is then the latest. Steps in `ignored` (the message
    that asks) hold no state. Without terms the step stands alone, as the latest (seed 4.1, ipcf.md 6).
    """
    if not terms:
        return Chronology("latest_chronological")
    carriers = [shard.carriers(terms) for shard in postings.shards()]

    def holds_state(other: int) -> bool:
        return other != step_id and other not in ignored

    newer_in_view = (other for other in in_view if other > step_id and other not in ignored)
    shown = max((other for other in newer_in_view if any(other in some for some in carriers)), default=None)
    if shown is not None:
        return Chronology("superseded", shown)
    newest = (next(filter(holds_state, some.newest_first()), step_id) for some in carriers)
    if max(newest, default=step_id) <= step_id:
        return Chronology("latest_chronological")
    oldest = (next(filter(holds_state, some.oldest_first()), step_id) for some in carriers)
    return Chronology("superseded" if min(oldest, default=step_id) < step_id else "historical")
