"""A small segment and the tail behind it as one shard: where all weights are equal, one race is cheaper than two."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mmu.postings.bits import BitRace, places
from mmu.postings.sealed import SMALL, Sealed
from mmu.postings.tail import Tail


class Joined:
    """The steps of a segment, then those of a tail; a tail's place stands behind all slots of the segment."""

    def __init__(self, sealed: Sealed, tail: Tail) -> None:
        self._sealed, self._tail, self._split = sealed, tail, len(sealed.segment)

    @classmethod
    def of(cls, sealed: Sealed, tail: Tail) -> Joined | None:
        """The two as one; None if that would not give the order of ids, or a segment is too large for it."""
        segment = sealed.segment
        fits = 0 < len(segment) <= SMALL and tail.follows(int(segment.ids[-1]))
        return cls(sealed, tail) if fits else None

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._tail or step_id in self._sealed

    def cost(self, step_id: int) -> int:
        """See `Shard.cost`."""
        return self._tail.cost(step_id) if step_id in self._tail else self._sealed.cost(step_id)

    def race(self, prompt: Mapping[str, int], excluded: Collection[int]) -> BitRace:
        """The cover of a prompt whose terms all count the same, and once. See `Shard.race`."""
        carried = self._sealed.carried(prompt, excluded)
        for term, bits in self._tail.carried(prompt, excluded).items():
            carried[term] = carried.get(term, 0) | bits << self._split
        return BitRace(self, next(iter(prompt.values()), 0), carried)

    def slot(self, step_id: int) -> int:
        """See `Slotted`."""
        place = self._tail.slot(step_id)
        return place + self._split if place >= 0 else self._sealed.segment.slot(step_id)

    def newest(self, bits: int) -> int:
        """See `Slotted`."""
        return self._id(bits.bit_length() - 1)

    def _id(self, slot: int) -> int:
        if slot >= self._split:
            return self._tail.newest(1 << slot - self._split)
        return int(self._sealed.segment.ids[slot])

    def listed(self, bits: int) -> list[int]:
        """See `Slotted`."""
        return [self._id(slot) for slot in places(bits)]

    def newest_first(self, bits: int) -> Iterator[int]:
        """See `Slotted`."""
        return reversed(self.listed(bits))
