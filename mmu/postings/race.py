"""The cover of one sealed shard.

Both races work alike. All steps are counted at once; those that gain most (some hundred) are laid out as a table of terms
times steps, in which the next picks are found and terms are taken out. Gains only fall, so the table's best is the shard's
best as long as it gains no less than every step outside did when the table was made. Then all are counted again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from mmu.postings import planes
from mmu.postings.planes import Plane, Slots
from mmu.postings.segment import Members, Segment

WIDTH = 512
"""Steps in a table, about."""

_NEVER = -(2**62)
"""The gain of a step that is no candidate: no sum of weights lifts it above 0."""


class UnitRace:
    """A cover in which each term counts the same, and only once. See `Race`."""

    def __init__(self, segment: Segment, weight: int, found: dict[str, Members], allowed: Plane | None) -> None:
        self._segment, self._weight, self._left, self._allowed = segment, weight, found, allowed
        self._lists = {term: members.list for term, members in found.items() if members.list is not None}
        self._tally: NDArray[np.unsignedinteger] | None = None
        self._answered: list[NDArray[np.uint32]] = []  # lists that the tally still counts
        self._packed: list[Plane] = []
        self._table: _Table | None = None
        self._gains = np.empty(0, np.int64)
        self._least = 0  # no step outside the table has more terms, and none with as many is newer
        self._alone: list[tuple[int, str]] | None = None  # once no step has two terms: the newest of each, ascending
        self._best: tuple[int, int] | None = None  # count, slot

    def best(self) -> tuple[int, int]:
        """See `Race`."""
        while self._best is None:
            if self._alone is not None:
                while self._alone and self._alone[-1][1] not in self._left:
                    self._alone.pop()
                self._best = (1, self._alone[-1][0]) if self._alone else (0, -1)
            elif self._table is not None:
                at = int(self._gains.argmax())
                if (most := int(self._gains[at])) >= self._least:
                    self._best = most, int(self._table.slots[at])
                else:
                    self._table = None
            else:
                self._fill()
        count, slot = self._best
        return (count * self._weight, int(self._segment.ids[slot])) if count else (0, -1)

    def take(self, step_id: int) -> Collection[str]:
        """See `Race`. What a step gained by is answered then, so that it cannot win again."""
        slot = self._segment.slot(step_id)
        if self._best is not None and self._best[1] == slot:
            if self._alone is not None:
                return [self._alone[-1][1]]
            if self._table is not None:
                return self._table.carried(slot) or ()
        return _carried(slot, self._left, self._segment)

    def settle(self, weights: Mapping[str, int], floor: int | None) -> None:
        """See `Race`."""
        gone = [term for term in weights if self._left.pop(term, None) is not None]
        if not gone:
            return
        self._best = None
        if self._table is not None:
            self._gains -= self._table.clear(gone)
        for term in gone:
            slots = self._lists.pop(term, None)
            if slots is not None and self._tally is not None:
                self._answered.append(slots)

    def _fill(self) -> None:
        if len(self._left) < 2:
            return self._settle_alone()
        slices = self._counts()
        most, mask = planes.top(slices, self._allowed)
        if most < 2 or mask is None:
            return self._settle_alone()
        least, size = most, planes.size(mask)
        step = max(1, most // 4)
        while least > 2 and size < WIDTH // 3:  # as low as the width allows
            lower = max(2, least - step)
            wider = planes.at_least(slices, lower, self._allowed)
            if wider is not None and (wide := planes.size(wider)) <= WIDTH:
                least, mask, size = lower, wider, wide
            elif step > 1:
                step //= 2
            else:
                break
        slots = planes.slots(mask)
        if slots.size > 4 * WIDTH:  # many that are equal: the newest of them go first
            slots = slots[-WIDTH:]
        self._table, self._least = _Table(self._segment, self._left, slots[::-1]), least
        self._gains = self._table.cells.sum(axis=0, dtype=np.int32)
        return None

    def _counts(self) -> list[Plane | None]:
        lists = list(self._lists.values())
        if self._tally is None or sum(map(len, self._answered)) > sum(map(len, lists)):
            self._tally = planes.tally(lists, len(self._segment))
            self._packed = planes.packed(self._tally) if lists else []
        elif self._answered:
            np.subtract.at(self._tally, np.concatenate(self._answered), self._tally.dtype.type(1))
            self._packed = planes.packed(self._tally)
        self._answered = []
        frequent = [self._segment.planes[members.row] for members in self._left.values() if members.list is None]
        levels = [frequent + self._packed[:1], *([plane] for plane in self._packed[1:])]
        return planes.add(levels, self._segment.planes.shape[1])

    def _settle_alone(self) -> None:
        newest = ((_newest(members, self._segment, self._allowed), term) for term, members in self._left.items())
        self._alone = sorted((slot, term) for slot, term in newest if slot >= 0)


class WeightedRace:
    """A cover with weights that decline, and floors. See `Race`. Weights sum up to less than 2**61."""

    def __init__(
        self, segment: Segment, prompt: Mapping[str, int], found: dict[str, Members], allowed: Plane | None
    ) -> None:
        self._segment, self._left = segment, found
        # What each term counts, and from which slot on: in the table, and as it was last counted for all.
        self._now = {term: (prompt[term], 0) for term in found}
        self._counted: dict[str, tuple[int, int]] = {}
        self._all = np.zeros(len(segment), np.int64)
        if allowed is not None:
            out = np.unpackbits(allowed.view(np.uint8), bitorder="little")[: len(segment)] == 0
            self._all[out] = _NEVER
        self._table: _Table | None = None
        self._gains = np.empty(0, np.int64)
        self._least = 0
        self._best: tuple[int, int] | None = None

    def best(self) -> tuple[int, int]:
        """See `Race`."""
        while self._best is None:
            if self._table is None:
                self._fill()
            if self._table is None:
                self._best = 0, -1
                break
            at = int(self._gains.argmax())
            if (most := int(self._gains[at])) >= self._least:
                self._best = most, int(self._table.slots[at])
            else:
                self._table = None
        gain, slot = self._best
        return (gain, int(self._segment.ids[slot])) if gain else (0, -1)

    def take(self, step_id: int) -> Collection[str]:
        """See `Race`."""
        slot = self._segment.slot(step_id)
        carried = self._table.carried(slot) if self._table is not None else None
        if carried is None:
            carried = _carried(slot, self._left, self._segment)
        self._all[slot] = _NEVER
        if self._table is not None:
            self._gains[self._table.slots == slot] = _NEVER
        self._best = None
        return [term for term in carried if self._now[term][0] > 0]

    def settle(self, weights: Mapping[str, int], floor: int | None) -> None:
        """See `Race`."""
        begin = 0 if floor is None else int(self._segment.ids.searchsorted(floor, side="right"))
        for term, weight in weights.items():
            if term not in self._now:
                continue
            old = self._now[term]
            new = self._now[term] = (weight, max(begin, old[1]))
            self._best = None
            if self._table is not None:
                self._gains += self._table.change(term, old, new)

    def _fill(self) -> None:
        """Count what changed, and lay out the steps that gain most."""
        for term, new in self._now.items():
            old = self._counted.get(term, (0, 0))
            if new != old:
                slots = _slots(self._left[term], self._segment)
                self._all[slots[slots.searchsorted(old[1]) :]] -= old[0]
                self._all[slots[slots.searchsorted(new[1]) :]] += new[0]
                self._counted[term] = new
        gains = self._all
        most = int(gains.max()) if gains.size else 0
        if most <= 0:
            return
        least = max(1, int(np.partition(gains, -WIDTH)[-WIDTH])) if gains.size > WIDTH else 1
        slots = np.flatnonzero(gains >= least)
        if slots.size > 4 * WIDTH:  # many that are equal: those above them, or the newest of them
            least = min(least + 1, most)
            slots = np.flatnonzero(gains >= least)
            if slots.size > 4 * WIDTH:
                slots = slots[-WIDTH:]
        slots = slots[::-1]
        left = {term: members for term, members in self._left.items() if self._now[term][0] > 0}
        self._table, self._gains, self._least = _Table(self._segment, left, slots), gains[slots], least


class _Table:
    """Which of some terms are carried by which of some steps: `cells` uint8[T, S], `slots` int64[S], the newest first."""

    def __init__(self, segment: Segment, terms: Mapping[str, Members], slots: Slots) -> None:
        self.slots = slots
        frequent = [(term, members.row) for term, members in terms.items() if members.list is None]
        rare = [(term, members.list) for term, members in terms.items() if members.list is not None]
        self._names = [term for term, _ in frequent] + [term for term, _ in rare]
        self._rows = {term: row for row, term in enumerate(self._names)}
        self.cells = np.zeros((len(self._names), slots.size), np.uint8)
        if frequent:
            octets = segment.planes.view(np.uint8)
            begins = np.array([row for _, row in frequent]) * octets.shape[1]
            found = octets.reshape(-1).take(begins[:, None] + (slots >> 3))
            found >>= (slots & 7).astype(np.uint8)
            np.bitwise_and(found, 1, self.cells[: len(frequent)])
        if rare:
            lists = [slots_of for _, slots_of in rare]
            listed = np.concatenate(lists)
            inside = np.zeros(len(segment), np.bool_)
            inside[slots] = True
            hits = inside.take(listed).nonzero()[0]
            ends = np.cumsum([slots_of.size for slots_of in lists])
            columns = slots.size - slots[::-1].searchsorted(listed.take(hits), side="right")
            self.cells[len(frequent) + ends.searchsorted(hits, side="right"), columns] = 1

    def carried(self, slot: int) -> list[str] | None:
        """The terms of a step, None if it is not in the table."""
        at = (self.slots == slot).nonzero()[0]
        return [self._names[row] for row in self.cells[:, at[0]].nonzero()[0].tolist()] if at.size else None

    def clear(self, terms: Collection[str]) -> NDArray[np.int32]:
        """Take terms out. How many each step loses, int32[S]."""
        rows = [self._rows[term] for term in terms if term in self._rows]
        lost: NDArray[np.int32] = self.cells[rows].sum(axis=0, dtype=np.int32)
        self.cells[rows] = 0
        return lost

    def change(self, term: str, old: tuple[int, int], new: tuple[int, int]) -> NDArray[np.int64]:
        """What each step gains (less than 0: loses) when a term counts another weight, from another slot on, int64[S]."""
        if term not in self._rows:
            return np.zeros(self.slots.size, np.int64)
        gained = np.where(self.slots >= new[1], new[0], 0) - np.where(self.slots >= old[1], old[0], 0)
        gained *= self.cells[self._rows[term]]
        return gained


def _carried(slot: int, terms: Mapping[str, Members], segment: Segment) -> list[str]:
    """Which of some terms the step in a slot carries."""
    found = []
    for term, members in terms.items():
        if members.list is None:
            carries = planes.has(segment.planes[members.row], slot)
        else:
            at = int(members.list.searchsorted(slot))
            carries = at < members.size and members.list[at] == slot
        if carries:
            found.append(term)
    return found


def _slots(members: Members, segment: Segment) -> NDArray[np.integer]:
    """The slots that carry a term, ascending."""
    return planes.slots(segment.planes[members.row]) if members.list is None else members.list


def _newest(members: Members, segment: Segment, allowed: Plane | None) -> int:
    """The newest slot that carries a term and is allowed, -1 if there is none."""
    if members.list is None:
        plane = segment.planes[members.row]
        for stop in range(plane.size, 0, -64):
            part = plane[max(stop - 64, 0) : stop]
            if allowed is not None:
                part = part & allowed[max(stop - 64, 0) : stop]
            words = np.flatnonzero(part)
            if words.size:
                word = int(words[-1])
                return (max(stop - 64, 0) + word) * 64 + int(part[word]).bit_length() - 1
        return -1
    if allowed is None:
        return int(members.list[-1])
    return next((slot for slot in members.list[::-1].tolist() if planes.has(allowed, slot)), -1)
