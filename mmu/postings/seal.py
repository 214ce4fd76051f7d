"""Making segments: from steps, and from segments that become one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmu.postings import planes
from mmu.postings.sealed import Sealed
from mmu.postings.segment import Segment, Stamp, digest, written
from mmu.postings.tail import Tail
from store import Progress

DENSITY = 64
"""A term in more than one of so many steps has a plane. At 64 a plane takes as long to count as a list of that length."""

LEAST = 128
"""A term in no more steps than this never has one: small segments are counted in integers, and planes slow a merge down."""

PART = 2**15
"""How many steps are sorted at a time when an index is built anew."""

CHUNK = 2**22
"""About how many postings are sorted at a time: it bounds the memory that a merge takes beside its result."""

Run = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.integer]]
"""Rows of a vocabulary, ascending; how many postings each has; their slots, one row after the other."""

_LOW = np.int64(2**32 - 1)


def of_steps(steps: Iterable[tuple[int, Iterable[str], int]], stamp: Stamp) -> bytearray:
    """A segment of steps: their ids (each once), terms and costs. In any order; the result is the same."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    ids: list[int] = []
    costs: list[int] = []
    lengths: list[int] = []
    flat: list[int] = []
    for step_id, terms, cost in steps:
        before = len(flat)
        flat.extend(map(numbers.__getitem__, terms))
        ids.append(step_id)
        costs.append(cost)
        lengths.append(len(flat) - before)
    order = np.argsort(np.array(ids, np.int64), kind="stable")
    slot_of = np.empty(len(ids), np.int64)
    slot_of[order] = np.arange(len(ids))
    digests = np.frombuffer(b"".join(map(digest, numbers)), "<u8").reshape(-1, 2)
    by_digest = np.lexsort((digests[:, 1], digests[:, 0]))
    row_of = np.empty(len(numbers), np.int64)
    row_of[by_digest] = np.arange(len(numbers))
    pairs = row_of[np.array(flat, np.int64)] << 32 | np.repeat(slot_of, lengths)
    pairs.sort()
    made = _Lists(len(ids), len(numbers))
    made.take(*_grouped(pairs[np.append(True, pairs[1:] != pairs[:-1])[: pairs.size]]))  # a step may name a term twice
    return made.written(stamp, np.array(ids, np.int64)[order], np.array(costs, np.int64)[order], digests[by_digest])


def of_many(
    steps: Iterable[tuple[int, Iterable[str], int]], total: int, stamp: Stamp, progress: Progress | None = None
) -> bytearray:
    """A segment of any number of steps (`total`, for the progress), as `of_steps`."""
    parts: list[tuple[Segment, Sequence[int]]] = []
    rest, done = iter(steps), 0
    while some := tuple(islice(rest, PART)):
        parts.append((Segment(of_steps(some, stamp)), ()))
        done += len(some)
        if progress is not None:
            progress(done, total)
    return merged(parts, stamp)


def joined(shards: Sequence[Sealed], tail: Tail, stamp: Stamp) -> bytearray:
    """One segment of what is alive in some shards and a tail."""
    fresh = of_steps(tail.rows(), stamp)
    if not shards:
        return fresh
    return merged([*((shard.segment, sorted(shard.dead)) for shard in shards), (Segment(fresh), ())], stamp)


def merged(parts: Sequence[tuple[Segment, Sequence[int]]], stamp: Stamp) -> bytearray:
    """One segment of several, each with the slots that are left out of it. No step stands in two of them."""
    ids, costs, keys, locks = [], [], [], []
    kept: list[NDArray[np.bool_]] = []
    for segment, dead in parts:
        alive = np.ones(len(segment), bool)
        alive[np.array(dead, np.int64)] = False
        kept.append(alive)
        ids.append(segment.ids[alive])
        costs.append(segment.table("costs")[alive])
        keys.append(segment.table("keys"))
        locks.append(segment.table("locks"))
    all_ids = np.concatenate(ids)
    order = np.argsort(all_ids, kind="stable")
    slot_of = np.empty(order.size, np.int64)
    slot_of[order] = np.arange(order.size)
    vocabulary, rows = _vocabulary(keys, locks)
    sources, begin = [], 0
    for (segment, _), alive, row_of in zip(parts, kept, rows, strict=True):
        slots = np.full(alive.size, -1, np.int64)
        slots[alive] = slot_of[begin : begin + int(alive.sum())]
        begin += int(alive.sum())
        sources.append(_Source(segment, slots, row_of))
    made = _Lists(order.size, len(vocabulary))
    total = np.zeros(len(vocabulary), np.int64)
    for source in sources:
        total[source.row_of] += source.sizes
    # In most cases the parts follow one another, nothing is left out, and their lists need only be laid end to end.
    ordered = order.size == sum(map(len, kept)) and bool((order[1:] > order[:-1]).all())
    for first, stop in _ranges(total):
        runs = (run for source in sources for run in source.runs(first, stop))
        if ordered:
            sizes = total[first:stop]
            made.take(np.arange(first, stop), sizes, _end_to_end(runs, first, sizes))
        else:
            pairs = np.concatenate([np.repeat(rows, sizes) << 32 | slots for rows, sizes, slots in runs])
            pairs.sort()
            made.take(*_grouped(pairs[pairs.searchsorted(0) :]))
    return made.written(stamp, all_ids[order], np.concatenate(costs)[order], vocabulary)


def _vocabulary(
    keys: Sequence[NDArray[Any]], locks: Sequence[NDArray[Any]]
) -> tuple[NDArray[np.uint64], list[NDArray[np.int64]]]:
    """The digests of all vocabularies, uint64[V, 2], ascending, and for each vocabulary the row of each of its terms."""
    key, lock = np.concatenate(keys), np.concatenate(locks)
    order = np.argsort(key, kind="stable")
    key, lock = key[order], lock[order]
    if np.any((key[1:] == key[:-1]) & (lock[1:] != lock[:-1])):  # half a digest in common
        order = np.lexsort((np.concatenate(locks), np.concatenate(keys)))
        key, lock = np.concatenate(keys)[order], np.concatenate(locks)[order]
    new = np.ones(key.size, bool)
    new[1:] = (key[1:] != key[:-1]) | (lock[1:] != lock[:-1])
    row_of = np.empty(key.size, np.int64)
    row_of[order] = np.cumsum(new) - 1
    bounds = np.cumsum([len(part) for part in keys])[:-1]
    return np.stack([key[new], lock[new]], axis=1), np.split(row_of, bounds)


def _ranges(total: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Rows of a vocabulary in runs of about CHUNK postings."""
    ends = np.cumsum(total)
    first = 0
    while first < total.size:
        reached = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, reached + CHUNK, side="right")), first + 1)
        yield first, stop
        first = stop


class _Source:
    """A segment that becomes part of another: `slots` (-1: left out) and `row_of` say where its own go."""

    def __init__(self, segment: Segment, slots: NDArray[np.int64], row_of: NDArray[np.int64]) -> None:
        self.row_of, self.sizes = row_of, segment.table("sizes").astype(np.int64)
        self._slots, self._starts, self._lists = slots, segment.table("starts"), segment.table("lists")
        self._segment = segment

    def runs(self, first: int, stop: int) -> Iterator[Run]:
        """Every posting in some rows of the new vocabulary. A slot of -1 is left out."""
        begin, end = np.searchsorted(self.row_of, (first, stop))  # both vocabularies ascend by digest
        rows, starts, sizes = self.row_of[begin:end], self._starts[begin:end], self.sizes[begin:end]
        rare = starts >= 0
        if rare.any():
            low = int(starts[rare][0])  # the lists of consecutive rows follow one another
            yield rows[rare], sizes[rare], self._slots[self._lists[low : low + int(sizes[rare].sum())]]
        for at in np.flatnonzero(~rare).tolist():
            members = self._segment.row(begin + at)
            yield rows[at : at + 1], sizes[at : at + 1], self._slots[planes.slots(self._segment.planes[members.row])]


def _end_to_end(runs: Iterable[Run], first: int, sizes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The slots of all rows from `first` on, of which `sizes` tells the lengths; those of earlier runs before later ones."""
    filled = np.cumsum(sizes) - sizes
    slots = np.empty(int(sizes.sum()), np.uint32)
    for rows, lengths, some in runs:
        begins = filled[rows - first]
        filled[rows - first] += lengths
        if rows.size == 1:
            slots[begins[0] : begins[0] + some.size] = some
        else:
            slots[np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(some.size)] = some
    return slots


def _grouped(pairs: NDArray[np.int64]) -> Run:
    """Ascending pairs, row << 32 | slot, as a run."""
    rows = pairs >> 32
    begins = np.flatnonzero(np.append(True, rows[1:] != rows[:-1])[: rows.size])
    return rows[begins], np.diff(np.append(begins, rows.size)), pairs & _LOW


class _Lists:
    """Takes runs, row after row, and gives the sections."""

    def __init__(self, steps: int, rows: int) -> None:
        self._steps = steps
        self._least = max(LEAST, steps // DENSITY)
        self._sizes = np.zeros(rows, np.int64)
        self._lists: list[NDArray[np.uint32]] = []
        self._planes: list[NDArray[np.uint64]] = []
        self._frequent: list[int] = []

    def take(self, rows: NDArray[np.int64], sizes: NDArray[np.int64], slots: NDArray[np.integer]) -> None:
        """All postings of some rows, the slots of each row ascending."""
        self._sizes[rows] = sizes
        frequent = sizes > self._least
        begins = np.cumsum(sizes) - sizes
        self._frequent += rows[frequent].tolist()
        for begin, size in zip(begins[frequent].tolist(), sizes[frequent].tolist(), strict=True):
            self._planes.append(planes.plane_of(slots[begin : begin + size], self._steps))
        self._lists.append(slots[np.repeat(~frequent, sizes)].astype(np.uint32))

    def written(
        self, stamp: Stamp, ids: NDArray[Any], costs: NDArray[Any], vocabulary: NDArray[np.uint64]
    ) -> bytearray:
        """The segment. Terms that nobody carries any more are left out."""
        own = self._sizes.copy()
        own[self._frequent] = 0
        starts = np.cumsum(own) - own
        starts[self._frequent] = -1 - np.arange(len(self._frequent))
        used = self._sizes > 0
        words = (self._steps + 63) // 64
        return written(
            stamp,
            {
                "ids": ids,
                "costs": costs,
                "keys": vocabulary[used, 0],
                "locks": vocabulary[used, 1],
                "sizes": self._sizes[used],
                "starts": starts[used],
                "lists": np.concatenate(self._lists) if self._lists else np.empty(0, np.uint32),
                "planes": np.stack(self._planes) if self._planes else np.empty((0, words), np.uint64),
            },
        )
