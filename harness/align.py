"""Which steps of a history are already known: clients send everything again, and change it (ipcf.md 2)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Known:
    """A step of the branch: its id, what it is recognised by, and how many messages it has."""

    step_id: int
    key: str
    messages: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A step of the history as it arrived."""

    key: str
    messages: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """An id for each shown step; which of them are new (positions); which known ids the client no longer shows.

    `inner` are those of the missing that stand behind a shown one, in the order of the branch; `lost` those of them that
    stand behind everything shown: the client went back before them.
    """

    ids: tuple[int, ...]
    new: tuple[int, ...]
    missing: tuple[int, ...]
    inner: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    def without(self, gone: Container[int]) -> Self:
        """The same, with these steps not missing."""
        missing, inner, lost = ([s for s in ids if s not in gone] for ids in (self.missing, self.inner, self.lost))
        return replace(self, missing=tuple(missing), inner=tuple(inner), lost=tuple(lost))

    @property
    def matched(self) -> int:
        """How many shown steps were known."""
        return len(self.ids) - len(self.new)


def align(known: Sequence[Known], shown: Sequence[Shown], next_id: int = 0) -> Alignment:
    """Give every shown step its id: known ones keep theirs, new ones take the next.

    `known` in the order in which the branch last showed them. `next_id` is the least id a new step may take; in an
    untouched history that gives the position of a step's first message. Linear. Where several known steps have one key,
    neighbours decide, then order.
    """
    matched = _match(known, shown)
    fresh = max([next_id, *[k.step_id + k.messages for k in known]])
    ids: list[int] = []
    for position, step in enumerate(shown):
        at = matched[position]
        if at is not None:
            ids.append(known[at].step_id)
        else:
            ids.append(fresh)
            fresh += step.messages
    taken = {at for at in matched if at is not None}
    first, last = min(taken, default=len(known)), max(taken, default=-1)
    return Alignment(
        tuple(ids),
        tuple(position for position, at in enumerate(matched) if at is None),
        tuple(step.step_id for at, step in enumerate(known) if at not in taken),
        tuple(step.step_id for at, step in enumerate(known) if at > first and at not in taken),
        tuple(step.step_id for step in known[last + 1 :]),
    )


def _match(known: Sequence[Known], shown: Sequence[Shown]) -> list[int | None]:
    """For each shown step the position of its known twin, or None."""
    start = 0
    while start < min(len(known), len(shown)) and known[start].key == shown[start].key:
        start += 1  # the common case: the history only grew
    if start < min(len(known), len(shown)):
        # Where the two part, a step that occurs more than once may be another one than it seems: a client that trims its
        # front can begin with a copy of the first step. Its neighbours decide, below.
        counts = Counter(step.key for step in known)
        while start and counts[known[start - 1].key] > 1:
            start -= 1
    pairs = _Pairs(known, shown, start)
    if start < len(shown):
        pairs.anchors()
        pairs.beside(1)
        pairs.beside(-1)
        pairs.in_order()
    return pairs.matched


class _Pairs:
    """Pairs of shown and known steps while they are being found; everything before `start` is equal."""

    def __init__(self, known: Sequence[Known], shown: Sequence[Shown], start: int) -> None:
        self._known, self._shown, self._start = known, shown, start
        self.matched: list[int | None] = [at if at < start else None for at in range(len(shown))]
        self._free = set(range(start, len(known)))
        self._places: defaultdict[str, deque[int]] = defaultdict(deque)
        for at in range(start, len(known)):
            self._places[known[at].key].append(at)

    def _open(self) -> list[int]:
        return [at for at in range(self._start, len(self._shown)) if self.matched[at] is None]

    def _take(self, position: int, at: int) -> None:
        self.matched[position] = at
        self._free.discard(at)

    def anchors(self) -> None:
        """Pair the steps that have one possible twin."""
        for position in self._open():
            places = self._places[self._shown[position].key]
            if len(places) == 1 and places[0] in self._free:
                self._take(position, places[0])

    def beside(self, step: int) -> None:
        """Pair a step with the twin that stands beside its neighbour's twin; `step` 1 looks back, -1 ahead."""
        for position in self._open()[::step]:
            neighbour = position - step
            beside = self.matched[neighbour] if 0 <= neighbour < len(self._shown) else None
            at = beside + step if beside is not None else -1
            if at in self._free and self._known[at].key == self._shown[position].key:
                self._take(position, at)

    def in_order(self) -> None:
        """Pair what is left, first with first."""
        for position in self._open():
            places = self._places[self._shown[position].key]
            while places and places[0] not in self._free:
                places.popleft()
            if places:
                self._take(position, places.popleft())
