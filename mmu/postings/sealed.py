"""A segment as a shard: which of its steps are still alive, and who carries some terms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mmu.postings import planes
from mmu.postings.bits import BitCarriers, BitRace
from mmu.postings.planes import Plane
from mmu.postings.race import UnitRace, WeightedRace
from mmu.postings.segment import Members, Segment
from mmu.postings.shard import Carriers, Race

SMALL = 2**15
"""Steps. Up to here a cover over Python's integers is faster than one over arrays."""


class Sealed:
    """A shard that only loses steps. See `Shard`."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.dead: set[int] = set()  # slots
        self._alive: Plane | None = None  # None: all of them

    def remove(self, step_id: int) -> None:
        """Take a step out; one that is not here is no matter."""
        slot = self.segment.slot(step_id)
        if slot >= 0 and slot not in self.dead:
            self.dead.add(slot)
            self._alive = planes.without(self._alive, (slot,), len(self.segment))

    def __contains__(self, step_id: object) -> bool:
        slot = self.segment.slot(step_id)
        return slot >= 0 and slot not in self.dead

    def __len__(self) -> int:
        return len(self.segment) - len(self.dead)

    def cost(self, step_id: int) -> int:
        """See `Shard.cost`."""
        slot = self.segment.slot(step_id)
        if slot < 0 or slot in self.dead:
            raise KeyError(step_id)
        return self.segment.cost(slot)

    def race(self, prompt: Mapping[str, int], excluded: Collection[int], *, once: bool) -> Race:
        """See `Shard.race`."""
        allowed, found = self._allowed(excluded), self.segment.members(prompt)
        if not once:
            return WeightedRace(self.segment, prompt, found, allowed)
        weight = next(iter(prompt.values()), 0)
        if len(self.segment) > SMALL:
            return UnitRace(self.segment, weight, found, allowed)
        return BitRace(self.segment, weight, self._sets(found, allowed))

    def carried(self, prompt: Iterable[str], excluded: Collection[int]) -> dict[str, int]:
        """The steps of each term of a prompt that somebody carries, as sets (`bits`)."""
        return self._sets(self.segment.members(prompt), self._allowed(excluded))

    def _sets(self, found: Mapping[str, Members], allowed: Plane | None) -> dict[str, int]:
        mask = -1 if allowed is None else int.from_bytes(allowed.tobytes(), "little")
        return {term: self.segment.bits(term, members) & mask for term, members in found.items()}

    def _allowed(self, excluded: Collection[int]) -> Plane | None:
        """The steps that are alive and not excluded; None for all."""
        if len(excluded) > len(self.segment):
            out = np.array([slot for slot, i in enumerate(self.segment.ids.tolist()) if i in excluded], np.int64)
        else:
            out = self.segment.slots(excluded)
        return planes.without(self._alive, out.tolist(), len(self.segment)) if out.size else self._alive

    def carriers(self, terms: Collection[str]) -> Carriers:
        """See `Shard.carriers`. The shortest list is narrowed by the others; without a list, planes are."""
        wanted = set(terms)
        known = self.segment.members(wanted)
        if len(known) < len(wanted):
            return BitCarriers(self.segment, 0)
        found = list(known.values())
        if len(self.segment) <= SMALL:
            bits = -1 if self._alive is None else int.from_bytes(self._alive.tobytes(), "little")
            for term, members in known.items():
                bits &= self.segment.bits(term, members)
            return BitCarriers(self.segment, bits)
        frequent = [self.segment.planes[members.row] for members in found if members.list is None]
        if self._alive is not None:
            frequent.append(self._alive)
        lists = sorted((members.list for members in found if members.list is not None), key=len)
        if not lists:
            plane = frequent[0]
            for other in frequent[1:]:
                plane = plane & other
            return PlaneCarriers(self.segment, plane)
        slots = lists[0]
        for longer in lists[1:]:
            at = np.minimum(longer.searchsorted(slots), longer.size - 1)
            slots = slots[longer[at] == slots]
        for plane in frequent:
            slots = slots[_bits(plane, slots)]
        return ListCarriers(self.segment, slots)

    def levels(self, terms: Collection[str]) -> Iterator[tuple[int, Sequence[int]]]:
        """See `Shard.levels`."""
        found = self.segment.members(set(terms)).values()
        count = counted(found, self.segment)
        most, mask = planes.top(count, self._alive)
        rest = self._alive
        while mask is not None:
            yield most, Ids(self.segment, planes.slots(mask))
            rest = ~mask if rest is None else rest & ~mask
            most, mask = planes.top(count, rest)


class Ids(Sequence[int]):
    """The step ids of some slots, as Python's integers."""

    def __init__(self, segment: Segment, slots: NDArray[np.int64]) -> None:
        self._segment, self._slots = segment, slots

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, at: int | slice) -> int | list[int]:  # type: ignore[override]
        return self._segment.ids[self._slots[at]].tolist()  # type: ignore[no-any-return]


class PlaneCarriers:
    """The steps in a plane. See `Carriers`."""

    def __init__(self, segment: Segment, plane: Plane) -> None:
        self._segment, self._plane = segment, plane

    def __contains__(self, step_id: int) -> bool:
        slot = self._segment.slot(step_id)
        return slot >= 0 and planes.has(self._plane, slot)

    def newest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        for word in np.flatnonzero(self._plane)[::-1].tolist():
            bits = int(self._plane[word])
            while bits:
                bit = bits.bit_length() - 1
                yield int(self._segment.ids[word * 64 + bit])
                bits ^= 1 << bit

    def oldest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        for word in np.flatnonzero(self._plane).tolist():
            bits = int(self._plane[word])
            while bits:
                low = bits & -bits
                yield int(self._segment.ids[word * 64 + low.bit_length() - 1])
                bits ^= low


class ListCarriers:
    """The steps in a list of slots, ascending. See `Carriers`."""

    def __init__(self, segment: Segment, slots: NDArray[np.uint32]) -> None:
        self._segment, self._slots = segment, slots

    def __contains__(self, step_id: int) -> bool:
        slot = self._segment.slot(step_id)
        at = int(self._slots.searchsorted(slot)) if slot >= 0 else len(self._slots)
        return at < len(self._slots) and self._slots[at] == slot

    def newest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        return (int(self._segment.ids[slot]) for slot in self._slots[::-1])

    def oldest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        return (int(self._segment.ids[slot]) for slot in self._slots)


def counted(found: Collection[Members], segment: Segment) -> list[Plane | None]:
    """In how many of some terms each slot is, as slices (`planes`)."""
    lists = [members.list for members in found if members.list is not None]
    frequent = [segment.planes[members.row] for members in found if members.list is None]
    rare = planes.packed(planes.tally(lists, len(segment))) if lists else []
    return planes.add([frequent + rare[:1], *([plane] for plane in rare[1:])], segment.planes.shape[1])


def _bits(plane: Plane, slots: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of some slots are in a plane."""
    found: NDArray[np.bool_] = (plane[slots >> 6] >> (slots & 63).astype(np.uint64) & np.uint64(1)).astype(bool)
    return found
