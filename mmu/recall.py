"""Where steps stand in time: the tiers of an explicit query, and the label of a step that comes back (seed 4.1)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterator, Sequence
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
    ranked: list[Ranked] = []
    for count, lists in _levels([shard.levels(terms) for shard in postings.shards()]):
        of = sum(map(len, lists))
        left = of if limit is None else limit - len(ranked)
        if left <= 0:
            break
        newest = lists[0][-left:][::-1]
        if len(lists) > 1:
            newest = sorted(chain.from_iterable(ids[-left:] for ids in lists), reverse=True)[:left]
        if ranked:
            ranked += [Ranked(step_id, "related", count) for step_id in newest]
        else:
            ranked += [Ranked(step_id, _status(at, of), count) for at, step_id in enumerate(newest)]
    return tuple(ranked)


def _levels(shards: Sequence[Iterator[tuple[int, Sequence[int]]]]) -> Iterator[tuple[int, list[Sequence[int]]]]:
    """The levels of all shards together, from the most terms down: how many, and the ids of each shard that has some."""
    if len(shards) == 1:
        return ((count, [ids]) for count, ids in shards[0])
    levels = groupby(heapq.merge(*shards, key=lambda level: -level[0]), key=lambda level: level[0])
    return ((count, [ids for _, ids in parts]) for count, parts in levels)


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
    carriers = [shard.carriers(terms) for shard in postings.shards()] if terms else []
    if not any(_first(some.newest_first(), ignored, above=step_id) for some in carriers):
        return Chronology("latest_chronological")
    shown: int | None = None
    for other in in_view:
        if other > (step_id if shown is None else shown) and other not in ignored:
            for some in carriers:
                if other in some:
                    shown = other
    if shown is None and not any(_first(some.oldest_first(), ignored, below=step_id) for some in carriers):
        return Chronology("historical")
    return Chronology("superseded", shown)


def _first(
    step_ids: Iterator[int], ignored: Container[int], *, above: int | None = None, below: int | None = None
) -> bool:
    """Whether one of some steps that is not ignored comes before the first that is not above (below) a step."""
    for step_id in step_ids:
        if (above is not None and step_id <= above) or (below is not None and step_id >= below):
            return False
        if step_id not in ignored:
            return True
    return False
