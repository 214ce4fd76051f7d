"""The page table of a session: the entries of the open generation in memory, those of the sealed ones on disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import chain

from store.errors import IntegrityCheckError
from store.journal import Journal
from store.node import IndexEntry

_CACHED = 4_096  # entries of sealed generations that are kept at hand


class Index(Mapping[int, IndexEntry]):
    """Entries by step id, over a journal whose sealed generations hold `sealed_steps`. A record that does not read is damage
    of the journal, and its step has no entry."""

    def __init__(self, journal: Journal, sealed_steps: int) -> None:
        self._journal, self._sealed_steps = journal, sealed_steps
        self._tail: dict[int, IndexEntry] = {}
        self._order: list[tuple[int, IndexEntry]] = []  # those of the open generation, with their places in the chain
        self._cache: dict[int, IndexEntry] = {}
        self._damaged: set[int] = set()

    def put(self, entry: IndexEntry, place: int, *, again: bool = False) -> None:
        """Take in an entry of the open generation, with its place in the chain; `again`: the step has an older one."""
        if again and entry.step_id not in self._tail:
            self._sealed_steps -= 1
        self._tail[entry.step_id] = entry
        self._order.append((place, entry))

    def recent(self, count: int) -> list[IndexEntry]:
        """The entries behind the chain's first `count`, in order."""
        at = bisect_left(self._order, count, key=lambda one: one[0])
        found = [entry for _, entry in self._order[at:]]
        return found if at else [*self._journal.sealed_entries(count), *found]

    def reconsider(self, step_id: int) -> None:
        """What is known of a sealed step may be outdated: look it up again."""
        self._cache.pop(step_id, None)

    def lose(self, steps: int) -> None:
        """So many steps of the sealed generations have no entry any more."""
        self._sealed_steps -= steps

    def __getitem__(self, step_id: int) -> IndexEntry:
        entry = self._tail.get(step_id) or self._cache.get(step_id) or self._look_up(step_id)
        if entry is None:
            raise KeyError(step_id)
        return entry

    def _is_sealed(self, step_id: object) -> bool:
        return bool(self._sealed_steps) and isinstance(step_id, int) and step_id not in self._damaged

    def _look_up(self, step_id: int) -> IndexEntry | None:
        if not self._is_sealed(step_id):
            return None
        try:
            entry = self._journal.steady(lambda: self._sealed_entry(step_id))
        except IntegrityCheckError as fault:
            self._damaged.add(step_id)
            self._journal.damage.append(fault)
            return None
        if entry is not None:
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[step_id] = entry
        return entry

    def _sealed_entry(self, step_id: int) -> IndexEntry | None:
        holder = self._journal.holder(step_id)
        return holder.entry(step_id) if holder is not None else None

    def __contains__(self, step_id: object) -> bool:
        if step_id in self._tail or step_id in self._cache:
            return True
        return (
            isinstance(step_id, int)
            and self._is_sealed(step_id)
            and self._journal.steady(lambda: self._journal.holder(step_id)) is not None
        )

    def __iter__(self) -> Iterator[int]:
        if not self._sealed_steps:
            return iter(self._tail)
        old = self._journal.steady(lambda: {s for generation in self._journal.sealed() for s in generation.ids()})
        return chain(sorted(old - self._tail.keys() - self._damaged), self._tail)

    def __len__(self) -> int:
        return self._sealed_steps + len(self._tail)
