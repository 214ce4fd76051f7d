"""The index of a session: a tail in memory and at most two sealed shards, a large one and a young one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any

from mmu.postings.shard import Costs, Race, Shard
from mmu.postings.tail import Tail

if TYPE_CHECKING:  # a session below the size of a tail loads no numpy
    from mmu.postings.sealed import Sealed

TAIL = 1024
"""Steps in a tail before it is sealed. Below it, nothing is written and numpy is not loaded."""


class Index:
    """Which archived steps carry a term. Derived from the store's entries; it can be thrown away and built anew.

    Steps may come in any order; a step added again replaces its older self. A full tail is merged into the young shard, and
    both into the large one when the young one has grown to about sqrt(2 * tail * large) steps: the two merges then cost a
    step the same, and the least together. `seal` makes a segment of some shards and a tail, and returns a buffer that holds
    it; it is told whether these are all steps.
    """

    def __init__(self, tail: int = TAIL, seal: Callable[[Sequence[Sealed], Tail, bool], Any] | None = None) -> None:
        self._limit = tail
        self._seal = seal or _in_memory
        self.tail = Tail()
        self.sealed: list[Sealed] = []

    def add(self, step_id: int, identifiers: Iterable[str], cost: int) -> None:
        """Index a step under its terms; `cost` in tokens."""
        for shard in self.sealed:
            shard.remove(step_id)
        self.tail.add(step_id, identifiers, cost)
        if self.tail.places >= self._limit:
            self.settle()

    def remove(self, step_id: int) -> None:
        """Take a step out; one that is not indexed is no matter."""
        self.tail.remove(step_id)
        for shard in self.sealed:
            shard.remove(step_id)

    def settle(self, *, whole: bool = False) -> None:
        """Seal the tail; with `whole`, into one segment of all steps."""
        from mmu.postings.sealed import Sealed  # noqa: PLC0415 - loads numpy
        from mmu.postings.segment import Segment  # noqa: PLC0415

        young = len(self.tail) + sum(map(len, self.sealed[1:]))
        whole = whole or not self.sealed or young > isqrt(2 * self._limit * len(self.sealed[0]))
        kept, merged = ([], self.sealed) if whole else (self.sealed[:1], self.sealed[1:])
        self.sealed = [*kept, Sealed(Segment(self._seal(merged, self.tail, whole)))]
        self.tail = Tail()

    def shards(self) -> Sequence[Shard]:
        """See `Postings`."""
        return [*self.sealed, self.tail]

    def races(self, prompt: Mapping[str, int], excluded: Collection[int], *, once: bool) -> list[tuple[Costs, Race]]:
        """See `Postings`."""
        if once and len(self.sealed) == 1:
            from mmu.postings.joined import Joined  # noqa: PLC0415 - loads numpy

            joined = Joined.of(self.sealed[0], self.tail)
            if joined is not None:
                return [(joined, joined.race(prompt, excluded))]
        return [(shard, shard.race(prompt, excluded, once=once)) for shard in self.shards()]

    def steps(self, term: str) -> Collection[int]:
        """The ids of the steps that carry a term; empty for a term that none carries."""
        return [step_id for shard in self.shards() for step_id in shard.carriers([term]).oldest_first()]

    def cost(self, step_id: int) -> int:
        """See `Postings`."""
        for shard in self.shards():
            if step_id in shard:
                return shard.cost(step_id)
        raise KeyError(step_id)

    def __contains__(self, step_id: object) -> bool:
        return any(step_id in shard for shard in self.shards())

    def __len__(self) -> int:
        return sum(map(len, self.shards()))


def _in_memory(merged: Sequence[Sealed], tail: Tail, whole: bool) -> bytearray:
    from mmu.postings.seal import joined  # noqa: PLC0415 - loads numpy
    from mmu.postings.segment import Stamp  # noqa: PLC0415

    return joined(merged, tail, Stamp())
