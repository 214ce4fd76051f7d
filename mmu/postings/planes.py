"""Counting by bits: how many of some sets hold each of n slots, 64 slots a machine word.

A plane is an array of words, uint64[W] with W = ceil(n / 64); slot s is bit s % 64 of word s // 64. Counts are slices:
plane i holds bit i of every slot's count. Three planes of one weight are added by a full adder (five operations on words) to
one plane of that weight and one of twice that weight: Harley and Seal's carry-save adder, sideways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.uint64]
Slots = NDArray[np.int64]


def add(inputs: Sequence[Sequence[Plane]], words: int) -> list[Plane | None]:
    """The slices of a sum: `inputs[i]` are the planes that count 2 ** i. They are not written to.

    None stands for a slice without a bit.
    """
    slices: list[Plane | None] = []
    pending = [list(planes) for planes in inputs]
    half = np.empty(words, np.uint64)
    xor, both, either = np.bitwise_xor, np.bitwise_and, np.bitwise_or
    while len(slices) < len(pending):
        waiting = pending[len(slices)]
        if not waiting:
            slices.append(None)
            continue
        total, carries, own = waiting[0], [], False
        for at in range(1, len(waiting) - 1, 2):
            second, third = waiting[at], waiting[at + 1]
            carry = both(total, second)
            xor(total, second, half)
            total = xor(half, third, total) if own else xor(half, third)
            both(half, third, half)
            either(carry, half, carry)
            carries.append(carry)
            own = True
        if len(waiting) % 2 == 0:
            carries.append(both(total, waiting[-1]))
            total = xor(total, waiting[-1], total) if own else xor(total, waiting[-1])
        slices.append(total)
        if carries:
            if len(pending) == len(slices):
                pending.append([])
            pending[len(slices)] += carries
    return slices


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
    if least >> len(slices):
        return None
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
    words = (plane != 0).nonzero()[0]
    bits = np.unpackbits(plane[words].view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    found: Slots = (words << 6)[bits >> 6] + (bits & 63)
    return found


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


def packed(counts: NDArray[np.unsignedinteger]) -> list[Plane]:
    """The slices of a tally."""
    most = int(counts.max()) if counts.size else 0
    return [
        np.packbits(counts & counts.dtype.type(1 << level), bitorder="little").view(np.uint64)
        for level in range(most.bit_length())
    ]
