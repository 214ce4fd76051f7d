"""Counting by bits: how many of some sets hold each of n slots, 64 slots a machine word.

A plane is an array of words, uint64[W] with W = ceil(n / 64); slot s is bit s % 64 of word s // 64. Counts are slices:
plane i holds bit i of every slot's count. Three planes of one weight are added by a full adder (five operations on words) to
one plane of that weight and one of twice that weight: Harley and Seal's carry-save adder, sideways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.uint64]
Slots = NDArray[np.int64]


class Adder:
    """Adds planes. Those that are given are never written to; those in between are reused."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._free: list[Plane] = []
        self._pending: list[list[tuple[Plane, bool]]] = []

    def add(self, plane: Plane, level: int = 0) -> None:
        """Add a plane that counts 2 ** level for each slot in it."""
        self._push(level, plane, False)

    def slices(self) -> list[Plane | None]:
        """The counts, lowest bit first; None stands for a slice without a bit. Ends the addition."""
        level = 0
        while level < len(self._pending):
            waiting = self._pending[level]
            if len(waiting) == 2:
                (a, own_a), (b, own_b) = waiting
                waiting.clear()
                total, carry = self._new(), self._new()
                np.bitwise_xor(a, b, out=total)
                np.bitwise_and(a, b, out=carry)
                self._free += [plane for plane, own in ((a, own_a), (b, own_b)) if own]
                waiting.append((total, True))
                self._push(level + 1, carry, True)
            level += 1
        return [waiting[0][0] if waiting else None for waiting in self._pending]

    def _push(self, level: int, plane: Plane, own: bool) -> None:
        while True:
            while len(self._pending) <= level:
                self._pending.append([])
            waiting = self._pending[level]
            waiting.append((plane, own))
            if len(waiting) < 3:
                return
            (a, _), (b, _), (c, _) = waiting
            either, total, carry = self._new(), self._new(), self._new()
            np.bitwise_xor(a, b, out=either)
            np.bitwise_xor(either, c, out=total)
            np.bitwise_and(either, c, out=either)
            np.bitwise_and(a, b, out=carry)
            np.bitwise_or(carry, either, out=carry)
            self._free.append(either)
            self._free += [plane for plane, own in waiting if own]
            waiting.clear()
            waiting.append((total, True))
            plane, own, level = carry, True, level + 1

    def _new(self) -> Plane:
        return self._free.pop() if self._free else np.empty(self._words, np.uint64)


def top(slices: Sequence[Plane | None], within: Plane | None) -> tuple[int, Plane | None]:
    """The highest count within a mask (None: everywhere), and the mask of the slots that have it; (0, None) if none."""
    mask, most = within, 0
    for level in range(len(slices) - 1, -1, -1):
        bits = slices[level]
        if bits is not None:
            narrowed = bits if mask is None else bits & mask
            if narrowed.any():
                mask, most = narrowed, most | 1 << level
    return (most, mask) if most else (0, None)


def at_least(slices: Sequence[Plane | None], least: int, within: Plane | None) -> Plane | None:
    """The mask of the slots whose count is `least` (above 0) or more; None if there can be none."""
    above: Plane | None = None
    equal: Plane | None = within
    anywhere = within is None  # `equal` stands for all slots
    for level in range(len(slices) - 1, -1, -1):
        bits = slices[level]
        if not anywhere and equal is None:
            break
        if least >> level & 1:
            equal = None if bits is None else bits if equal is None else equal & bits
            anywhere = False
        elif bits is not None:
            more = bits if equal is None else equal & bits
            above = more if above is None else above | more
    if equal is None:
        return above
    return equal if above is None else above | equal


def size(plane: Plane) -> int:
    """How many slots are in a plane."""
    return int(np.bitwise_count(plane).sum())


def slots(plane: Plane) -> Slots:
    """The slots in a plane, int64, ascending."""
    words = np.flatnonzero(plane)
    bits = np.unpackbits(plane[words].view(np.uint8), bitorder="little").reshape(-1, 64)
    row, bit = np.nonzero(bits)
    return words[row] * 64 + bit


def plane_of(members: NDArray[np.integer], count: int) -> Plane:
    """The plane of some slots out of `count`."""
    words = (count + 63) // 64
    dense = np.zeros(words * 64, np.uint8)
    dense[members] = 1
    return np.packbits(dense, bitorder="little").view(np.uint64)


def without(plane: Plane | None, members: Iterable[int], count: int) -> Plane:
    """A plane (None: all slots out of `count`) without some slots, as a new one."""
    if plane is None:
        plane = np.full((count + 63) // 64, ~np.uint64(0))
        if count % 64:
            plane[-1] = (1 << count % 64) - 1
    else:
        plane = plane.copy()
    for slot in members:
        plane[slot >> 6] &= ~np.uint64(1 << (slot & 63))
    return plane


def has(plane: Plane, slot: int) -> bool:
    """Whether a slot is in a plane."""
    return int(plane[slot >> 6]) >> (slot & 63) & 1 == 1


def tally(lists: Sequence[NDArray[np.uint32]], count: int) -> NDArray[np.unsignedinteger]:
    """In how many of some lists each slot is, padded to whole words: as bytes while a byte can hold it, else wider."""
    width = np.uint8 if len(lists) < 2**8 else np.uint16 if len(lists) < 2**16 else np.uint32
    counts: NDArray[np.unsignedinteger] = np.zeros((count + 63) // 64 * 64, width)
    if lists:
        np.add.at(counts, np.concatenate(lists), width(1))
    return counts


def bytewise(counts: NDArray[np.unsignedinteger]) -> Iterator[tuple[int, Plane]]:
    """A tally as planes, each with its level."""
    most = int(counts.max()) if counts.size else 0
    for level in range(most.bit_length()):
        yield level, np.packbits(counts & counts.dtype.type(1 << level), bitorder="little").view(np.uint64)
