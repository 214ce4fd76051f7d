"""A sealed part of an index: bytes that never change, in memory or in a file that is mapped.

Layout (little endian): `MAGIC`, length and CRC-32 of the head (u32 each), the head as JSON, then the sections, each at a
multiple of 64 bytes, as the head's `sections` say:

    ids      u32[n]        step ids, ascending; a step's place here is its slot
    costs    u32[n]        tokens
    keys     u64[V]        first half of the terms' digests, ascending
    locks    u64[V]        second half
    sizes    u32[V]        in how many steps a term is
    starts   i64[V]        where its list begins in `lists`; -1 - r for a term that has row r of `planes`
    lists    u32[...]      the slots of rare terms, ascending
    planes   u64[F, W]     the slots of frequent terms as bits, W = ceil(n / 64)
    checks   u32[...]      CRC-32 of each 4,096 bytes of the sections before, one after the other

A term is known by its BLAKE2b digest of 128 bits: that two of 10**9 terms share one has a probability of 10**-21, and the
file holds no word of the session. What is read is checked: the head, `ids`, `keys` and `checks` when a segment is opened, any
other block of 4,096 bytes when it is touched first.
"""

from __future__ import annotations

import mmap
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from mmu.errors import DamagedSegmentError
from mmu.postings.bits import places

MAGIC = b"MMUSEG\x00\x01"
BLOCK = 4096
RELEASE = 32, 2**26
"""After so many terms the mapped lists, if they have so many bytes, are given back to the system."""

SECTIONS = {
    "ids": "<u4",
    "costs": "<u4",
    "keys": "<u8",
    "locks": "<u8",
    "sizes": "<u4",
    "starts": "<i8",
    "lists": "<u4",
    "planes": "<u8",
}


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which history a segment stands for: the entries archived from number `since` up to `count`, all as they were in
    `epoch`; `link` pins the history up to `count`, and `terms` says how the terms were found."""

    epoch: int = 0
    since: int = 0
    count: int = 0
    link: str = ""
    terms: str = ""


@dataclass(frozen=True, slots=True)
class Members:
    """The slots that carry a term: a list (uint32, ascending) of a rare one, or row `row` of the planes."""

    list: NDArray[np.uint32] | None
    row: int
    size: int


class Segment:
    """A sealed shard's arrays. Raises DamagedSegmentError where bytes are not what was written."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data).cast("B")
        head, begin = self._head()
        self.stamp = Stamp(**head["stamp"])
        self._places: dict[str, tuple[int, int]] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for name, kind in (*SECTIONS.items(), ("checks", "<u4")):
            offset, *shape = head["sections"][name]
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(self._data, kind, count, begin + offset).reshape(shape)
            self._places[name] = (begin + offset, arrays[name].nbytes)
        self.ids: NDArray[np.uint32] = arrays["ids"]
        self.planes: NDArray[np.uint64] = arrays["planes"]
        # Plain integers: one by one they are read faster than from arrays.
        self._id_view = self._view("ids").cast("I")
        self._key_view, self._lock_view = self._view("keys").cast("Q"), self._view("locks").cast("Q")
        self._size_view, self._start_view = self._view("sizes").cast("I"), self._view("starts").cast("q")
        self._costs, self._keys = arrays["costs"], arrays["keys"]
        self._lists, self._checks = arrays["lists"], arrays["checks"]
        self._first: dict[str, int] = {}
        blocks = 0
        for name in SECTIONS:
            self._first[name] = blocks
            blocks += -(-self._places[name][1] // BLOCK)
        self._unchecked = bytearray(b"\x01") * blocks
        self._known: dict[str, Members | None] = {}
        self._bits: dict[str, int] = {}
        self._asked = 0
        self._check_head(head, blocks)

    def _head(self) -> tuple[dict[str, Any], int]:
        data = self._data
        if len(data) < 16 or data[:8] != MAGIC:
            raise DamagedSegmentError("head", "no segment of this version")
        length, crc = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
        raw = bytes(data[16 : 16 + length])
        if zlib.crc32(raw) != crc:
            raise DamagedSegmentError("head", "another checksum than written")
        head: dict[str, Any] = orjson.loads(raw)
        if head["size"] != len(data):
            raise DamagedSegmentError("head", f"{len(data)} bytes instead of {head['size']}")
        return head, -(-(16 + length) // 64) * 64

    def _view(self, name: str) -> memoryview:
        place, size = self._places[name]
        return self._data[place : place + size]

    def _check_head(self, head: dict[str, Any], blocks: int) -> None:
        if self._checks.size != blocks or zlib.crc32(self._checks.tobytes()) != head["checks"]:
            raise DamagedSegmentError("checks", "another checksum than written")
        for name in ("ids", "keys", "locks", "sizes", "starts"):  # small, and asked for each term
            self.check(name, 0, self._places[name][1])

    def check(self, name: str, start: int, stop: int) -> None:
        """Check those bytes of a section that were not checked before."""
        first, unchecked = self._first[name], self._unchecked
        if not any(unchecked[first + start // BLOCK : first + (stop - 1) // BLOCK + 1]):
            return
        place, size = self._places[name]
        for block in range(start // BLOCK, -(-min(stop, size) // BLOCK)):
            if unchecked[first + block]:
                begin = place + block * BLOCK
                if zlib.crc32(self._data[begin : min(begin + BLOCK, place + size)]) != self._checks[first + block]:
                    raise DamagedSegmentError(name, f"block {block} has another checksum than written")
                unchecked[first + block] = 0

    def check_all(self) -> None:
        """Check every byte."""
        for name in SECTIONS:
            self.check(name, 0, self._places[name][1])

    def __len__(self) -> int:
        return len(self.ids)

    def slot(self, step_id: object) -> int:
        """The slot of a step, -1 if it is not here."""
        if not isinstance(step_id, int):
            return -1
        ids = self._id_view
        slot = bisect_left(ids, step_id)
        return slot if slot < len(ids) and ids[slot] == step_id else -1

    def slots(self, step_ids: Iterable[int]) -> NDArray[np.int64]:
        """The slots of those of some steps that are here."""
        wanted = np.fromiter((s for s in step_ids if 0 <= s < 2**32), np.uint32)
        at = np.minimum(self.ids.searchsorted(wanted), max(len(self) - 1, 0))
        return at[self.ids[at] == wanted] if len(self) else at[:0]

    def slots_in(self, other: Segment) -> NDArray[np.int64]:
        """The slots of those steps that stand in another segment as well."""
        at = np.minimum(other.ids.searchsorted(self.ids), max(len(other) - 1, 0))
        return np.flatnonzero(other.ids[at] == self.ids) if len(other) else at[:0]

    def cost(self, slot: int) -> int:
        """Tokens of the step in a slot."""
        self.check("costs", slot * 4, slot * 4 + 4)
        return int(self._costs[slot])

    def members(self, terms: Iterable[str]) -> dict[str, Members]:
        """Who carries the terms, for those that somebody carries."""
        known = self._known
        wanted = list(terms)
        self._asked += len(wanted)
        if self._asked > RELEASE[0]:
            self._asked = 0
            self._release()
        fresh = [term for term in wanted if term not in known]
        if fresh:
            if len(known) > 2**16:  # a bound on what a long-lived process keeps of its prompts
                known.clear()
                fresh = wanted
            self._look_up(fresh)
        return {term: found for term in wanted if (found := known[term]) is not None}

    def _release(self) -> None:
        """Give the mapped pages of `lists` back: around a page that is read, up to two megabytes become resident.

        They stay in the system's cache, and what was read stays valid.
        """
        place, size = self._places["lists"]
        begin = place // mmap.PAGESIZE * mmap.PAGESIZE
        if isinstance(self._data.obj, mmap.mmap) and size > RELEASE[1]:
            self._data.obj.madvise(mmap.MADV_DONTNEED, begin, place + size - begin)

    def _look_up(self, terms: list[str]) -> None:
        digests = np.frombuffer(b"".join(map(digest, terms)), "<u8").reshape(-1, 2)
        rows = self._keys.searchsorted(digests[:, 0]).tolist()
        for term, row, (key, lock) in zip(terms, rows, digests.tolist(), strict=True):
            self._known[term] = self._find(row, key, lock)

    def _find(self, row: int, key: int, lock: int) -> Members | None:
        while row < len(self._key_view) and self._key_view[row] == key:
            if self._lock_view[row] == lock:
                return self.row(row)
            row += 1
        return None

    def bits(self, term: str, members: Members) -> int:
        """Who carries a term, as an integer (`bits`)."""
        bits = self._bits.get(term)
        if bits is None:
            if members.list is None:
                raw = self.planes[members.row].tobytes()
            else:
                dense = np.zeros(len(self), np.bool_)
                dense[members.list] = True
                raw = np.packbits(dense, bitorder="little").tobytes()
            if len(self._bits) > 2**12:
                self._bits.clear()
            bits = self._bits[term] = int.from_bytes(raw, "little")
        return bits

    def newest(self, bits: int) -> int:
        """The highest id in a set of slots (`bits`) that is not empty."""
        return int(self._id_view[bits.bit_length() - 1])

    def listed(self, bits: int) -> list[int]:
        """The ids in a set of slots, ascending."""
        return [self._id_view[slot] for slot in places(bits)]

    def newest_first(self, bits: int) -> Iterator[int]:
        """The ids in a set of slots, descending."""
        while bits:
            slot = bits.bit_length() - 1
            yield self._id_view[slot]
            bits ^= 1 << slot

    def row(self, row: int) -> Members:
        """Who carries the term in a row of the vocabulary."""
        start, size = self._start_view[row], self._size_view[row]
        if start < 0:
            width = self.planes.shape[1] * 8
            self.check("planes", (-1 - start) * width, -start * width)
            return Members(None, -1 - start, size)
        self.check("lists", start * 4, (start + size) * 4)
        return Members(self._lists[start : start + size], -1, size)

    def table(self, name: str) -> NDArray[Any]:
        """A whole section, checked."""
        self.check(name, 0, self._places[name][1])
        place, size = self._places[name]
        return np.frombuffer(self._data, SECTIONS[name], size // int(SECTIONS[name][-1]), place)


def digest(term: str) -> bytes:
    """What stands for a term in a segment, 16 bytes."""
    return blake2b(term.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def written(stamp: Stamp, sections: dict[str, NDArray[Any]]) -> bytearray:
    """A segment's bytes from its sections (all but `checks`)."""
    places, offset, checks = {}, 0, []
    for name, kind in SECTIONS.items():
        array = np.ascontiguousarray(sections[name], dtype=kind)
        places[name] = (offset, array)
        raw = array.tobytes()
        checks += [zlib.crc32(raw[start : start + BLOCK]) for start in range(0, len(raw), BLOCK)]
        offset += -(-array.nbytes // 64) * 64
    table = np.array(checks, "<u4")
    places["checks"] = (offset, table)
    head = {
        "stamp": asdict(stamp),
        "sections": {name: [offset, *array.shape] for name, (offset, array) in places.items()},
        "checks": zlib.crc32(table.tobytes()),
        "size": 0,
    }
    body = offset + table.nbytes
    begin = _begin(head, body)
    head["size"] = begin + body
    raw_head = orjson.dumps(head)
    data = bytearray(begin + body)
    data[: 16 + len(raw_head)] = (
        MAGIC + len(raw_head).to_bytes(4, "little") + zlib.crc32(raw_head).to_bytes(4, "little") + raw_head
    )
    for offset, array in places.values():
        data[begin + offset : begin + offset + array.nbytes] = array.tobytes()
    return data


def _begin(head: dict[str, Any], body: int) -> int:
    """Where the sections begin: behind the head, whose length depends on the digits of the size."""
    begin = 0
    while True:
        length = len(orjson.dumps(head | {"size": begin + body}))
        needed = -(-(16 + length) // 64) * 64
        if needed == begin:
            return begin
        begin = needed
