"""Sets of steps as integers, and the cover over them. Bit s of a set says that the step in place s is in it.

Python's integers combine a thousand steps in 60 ns and ten thousand in 200 ns, less than a call of numpy takes. The counts of
a shard of that size are best kept in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol


class Slotted(Protocol):
    """Gives the steps of a shard their places in its sets."""

    def newest(self, bits: int) -> int:
        """The highest id in a set that is not empty."""

    def slot(self, step_id: int) -> int:
        """The place of a step, -1 if it is not here."""

    def listed(self, bits: int) -> list[int]:
        """The ids in a set, ascending."""

    def newest_first(self, bits: int) -> Iterator[int]:
        """The ids in a set, descending."""


class BitCarriers:
    """The steps in a set. See `Carriers`."""

    def __init__(self, shard: Slotted, bits: int) -> None:
        self._shard, self._bits = shard, bits

    def __contains__(self, step_id: int) -> bool:
        slot = self._shard.slot(step_id)
        return slot >= 0 and self._bits >> slot & 1 == 1

    def newest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        return self._shard.newest_first(self._bits)

    def oldest_first(self) -> Iterator[int]:
        """See `Carriers`."""
        return iter(self._shard.listed(self._bits))


class BitRace:
    """A cover in which each term counts the same (`weight`), and only once. See `Race`."""

    def __init__(self, shard: Slotted, weight: int, carried: dict[str, int]) -> None:
        self._shard, self._weight, self._left = shard, weight, carried
        self._count = Count(carried.values())
        self._best: tuple[int, int] | None = None
        self._alone: list[tuple[int, str]] | None = None  # once no step has two terms: the newest of each, ascending

    def best(self) -> tuple[int, int]:
        """See `Race`. The newest of the steps with the highest count."""
        if self._best is None:
            most, bits = self._count.top(-1) if self._alone is None else (1, 0)
            if most == 1:
                self._best = self._newest_alone()
            else:
                self._best = (most * self._weight, self._shard.newest(bits)) if most else (0, -1)
        return self._best

    def _newest_alone(self) -> tuple[int, int]:
        if self._alone is None:
            self._alone = sorted((self._shard.newest(bits), term) for term, bits in self._left.items() if bits)
        while self._alone and self._alone[-1][1] not in self._left:
            self._alone.pop()
        return (self._weight, self._alone[-1][0]) if self._alone else (0, -1)

    def take(self, step_id: int) -> Collection[str]:
        """See `Race`. What a step gained by is answered then, so that it cannot win again."""
        place = self._shard.slot(step_id)
        return [term for term, bits in self._left.items() if bits >> place & 1]

    def settle(self, weights: Mapping[str, int], floor: int | None) -> None:
        """See `Race`."""
        gone = [bits for term in weights if (bits := self._left.pop(term, 0))]
        if not gone:
            return
        self._best = None
        if self._alone is not None:
            return
        if 3 * len(gone) > len(self._left):  # to take one out costs about what counting three anew does
            self._count = Count(self._left.values())
        else:
            for bits in gone:
                self._count.subtract(bits)


class Count:
    """How many of some bit sets hold each place, as slices: bit i of all counts is the integer `slices[i]`."""

    def __init__(self, sets: Iterable[int]) -> None:
        self._slices: list[int] = []
        waiting = list(sets)
        while waiting:  # full adders, as in `planes.add`: three sets of one weight are one of it and one of the next
            total, carries = waiting[0], []
            for second, third in zip(waiting[1::2], waiting[2::2], strict=False):
                half = total ^ second
                carries.append(total & second | half & third)
                total = half ^ third
            if len(waiting) % 2 == 0:
                carries.append(total & waiting[-1])
                total ^= waiting[-1]
            self._slices.append(total)
            waiting = [carry for carry in carries if carry]

    def subtract(self, borrow: int) -> None:
        """Take one of the sets out again."""
        slices = self._slices
        for level, bits in enumerate(slices):
            slices[level], borrow = bits ^ borrow, ~bits & borrow
            if not borrow:
                return

    def top(self, mask: int) -> tuple[int, int]:
        """The highest count in a mask, and the places in it that have this count; (0, 0) if none counts."""
        most = 0
        for level in range(len(self._slices) - 1, -1, -1):
            if narrowed := self._slices[level] & mask:
                mask, most = narrowed, most | 1 << level
        return (most, mask) if most else (0, 0)


def places(bits: int) -> list[int]:
    """The places of the bits that are set, ascending."""
    text = f"{bits:b}"
    last, found, at = len(text) - 1, [], text.rfind("1")
    while at >= 0:
        found.append(last - at)
        at = text.rfind("1", 0, at)
    return found
