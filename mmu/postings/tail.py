"""The newest steps of an index, in memory. A term is one integer whose bits are the steps that carry it (`bits`)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mmu.postings.bits import BitCarriers, BitRace, Count, places


class Tail:
    """A shard that grows. Steps may come in any order; a step added again replaces its older self."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._ids: list[int] = []  # by place; what was removed leaves its place empty
        self._terms: list[tuple[str, ...]] = []
        self._costs: list[int] = []
        self._places: dict[int, int] = {}
        self._alive = 0
        self._ascending = True

    def add(self, step_id: int, identifiers: Iterable[str], cost: int) -> None:
        """Index a step under its terms; `cost` in tokens."""
        self.remove(step_id)
        place = len(self._ids)
        self._ascending = self._ascending and (not self._ids or self._ids[-1] < step_id)
        bit, bits = 1 << place, self._bits
        terms = tuple(identifiers)
        for term in terms:
            bits[term] = bits.get(term, 0) | bit
        self._ids.append(step_id)
        self._terms.append(terms)
        self._costs.append(cost)
        self._places[step_id] = place
        self._alive |= bit

    def remove(self, step_id: int) -> None:
        """Take a step out; one that is not here is no matter."""
        place = self._places.pop(step_id, None)
        if place is not None:
            self._alive ^= 1 << place
            for term in self._terms[place]:
                self._bits[term] &= ~(1 << place)
            self._terms[place] = ()

    @property
    def places(self) -> int:
        """How many places are taken, also by steps that were removed since."""
        return len(self._ids)

    def rows(self) -> Iterator[tuple[int, Sequence[str], int]]:
        """Each step: its id, terms and cost, in order of arrival."""
        for step_id, place in self._places.items():
            yield step_id, self._terms[place], self._costs[place]

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._places

    def __len__(self) -> int:
        return len(self._places)

    def cost(self, step_id: int) -> int:
        """See `Shard.cost`."""
        return self._costs[self._places[step_id]]

    def race(self, prompt: Mapping[str, int], excluded: Collection[int], *, once: bool) -> BitRace | WeightedRace:
        """See `Shard.race`."""
        carried = self.carried(prompt, excluded)
        if once:
            return BitRace(self, next(iter(prompt.values()), 0), carried)
        return WeightedRace(self, prompt, carried)

    def carried(self, prompt: Iterable[str], excluded: Collection[int]) -> dict[str, int]:
        """The steps of each term of a prompt that somebody carries, as sets (`bits`)."""
        mask = self._alive
        for place in self._known(excluded):
            mask &= ~(1 << place)
        masked = ((term, self._bits.get(term, 0) & mask) for term in prompt)
        return {term: bits for term, bits in masked if bits}

    def follows(self, step_id: int) -> bool:
        """Whether all its steps are newer than another, and stand in the order of their ids."""
        return bool(self._ids) and self._ascending and self._ids[0] > step_id

    def _known(self, step_ids: Collection[int]) -> Iterator[int]:
        """The places of those of some steps that are here."""
        if len(step_ids) > len(self._places):
            return (place for step_id, place in self._places.items() if step_id in step_ids)
        return (self._places[step_id] for step_id in step_ids if step_id in self._places)

    def carriers(self, terms: Collection[str]) -> BitCarriers:
        """See `Shard.carriers`."""
        bits = self._alive
        for term in terms:
            bits &= self._bits.get(term, 0)
        return BitCarriers(self, bits)

    def levels(self, terms: Collection[str]) -> Iterator[tuple[int, Sequence[int]]]:
        """See `Shard.levels`."""
        count = Count(self._bits.get(term, 0) for term in set(terms))
        rest = self._alive
        while True:
            most, bits = count.top(rest)
            if not most:
                return
            yield most, self.listed(bits)
            rest &= ~bits

    def listed(self, bits: int) -> list[int]:
        """The ids of the steps in a mask, ascending."""
        found = [self._ids[place] for place in places(bits)]
        if not self._ascending:
            found.sort()
        return found

    def newest_first(self, bits: int) -> Iterator[int]:
        """The ids of the steps in a mask, descending."""
        if not self._ascending:
            yield from reversed(self.listed(bits))
            return
        while bits:
            place = bits.bit_length() - 1
            yield self._ids[place]
            bits ^= 1 << place

    def newest(self, bits: int) -> int:
        """The highest id in a mask that is not empty."""
        return self._ids[bits.bit_length() - 1] if self._ascending else self.listed(bits)[-1]

    def slot(self, step_id: int) -> int:
        """The place of a step, -1 if it is not here."""
        return self._places.get(step_id, -1)


class WeightedRace:
    """A cover with weights that decline, and floors. See `Race`.

    Gains only fall. A gain on the heap is therefore an upper bound, and who stands at the top with its true gain is the
    best. Of the steps that carry the same terms only the newest competes: no older one gains more.
    """

    def __init__(self, tail: Tail, prompt: Mapping[str, int], carried: dict[str, int]) -> None:
        self._weights = {term: prompt[term] for term in carried}
        self._floors = dict.fromkeys(carried, -1)
        self._carried: dict[int, list[str]] = {}
        for term, bits in carried.items():
            for step_id in tail.listed(bits):
                self._carried.setdefault(step_id, []).append(term)
        groups: dict[tuple[str, ...], list[int]] = {}
        for step_id in sorted(self._carried):
            groups.setdefault(tuple(self._carried[step_id]), []).append(step_id)
        self._heap = [(-self._gain(group[-1]), -group[-1], group) for group in groups.values()]
        heapq.heapify(self._heap)
        self._taken: set[int] = set()

    def best(self) -> tuple[int, int]:
        """See `Race`."""
        heap = self._heap
        while heap:
            bound, newest, group = heap[0]
            gain = self._gain(-newest)
            if -newest in self._taken:
                group.pop()
            elif gain > 0 and gain == -bound:
                return gain, -newest
            elif gain <= 0:
                group.clear()  # nor does an older one of the group gain
            if group:
                heapq.heapreplace(heap, (-self._gain(group[-1]), -group[-1], group))
            else:
                heapq.heappop(heap)
        return 0, -1

    def take(self, step_id: int) -> Collection[str]:
        """See `Race`."""
        self._taken.add(step_id)
        return [term for term in self._carried.get(step_id, ()) if self._weights[term] > 0]

    def settle(self, weights: Mapping[str, int], floor: int | None) -> None:
        """See `Race`."""
        for term, weight in weights.items():
            if term in self._weights:
                self._weights[term] = weight
                if floor is not None:
                    self._floors[term] = max(self._floors[term], floor)

    def _gain(self, step_id: int) -> int:
        """What a step would add now: the weights of its terms that still count for it."""
        floors, weights = self._floors, self._weights
        return sum(weights[term] for term in self._carried[step_id] if step_id > floors[term])
