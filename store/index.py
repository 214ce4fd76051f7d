"""The page table of a session: the entries of the open generation in memory, those of the sealed ones on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from store.errors import IntegrityCheckError
from store.journal import Journal
from store.node import IndexEntry
from store.sealed import Sealed

_CACHED = 4_096  # entries of sealed generations that are kept at hand


class Index(Mapping[int, IndexEntry]):
    """Entries by step id, over a journal whose sealed generations hold `sealed_steps`. A record that does not read is damage
    of the journal, and its step has no entry."""

    def __init__(self, journal: Journal, sealed_steps: int) -> None:
        self._journal, self._sealed_steps = journal, sealed_steps
        self._tail: dict[int, IndexEntry] = {}
        self._cache: dict[int, IndexEntry] = {}
        self._damaged: set[int] = set()

    def put(self, entry: IndexEntry, *, again: bool = False) -> None:
        """Take in an entry of the open generation; `again`: the step has an older one."""
        if again and entry.step_id not in self._tail:
            self._sealed_steps -= 1
        self._tail[entry.step_id] = entry

    def lose(self, steps: int) -> None:
        """So many steps of the sealed generations have no entry any more."""
        self._sealed_steps -= steps

    def __getitem__(self, step_id: int) -> IndexEntry:
        entry = self._tail.get(step_id) or self._cache.get(step_id) or self._look_up(step_id)
        if entry is None:
            raise KeyError(step_id)
        return entry

    def _holder(self, step_id: object) -> Sealed | None:
        """The generation that has the newest entry of a step."""
        if not self._sealed_steps or not isinstance(step_id, int) or step_id in self._damaged:
            return None
        return self._journal.holder(step_id)

    def _look_up(self, step_id: int) -> IndexEntry | None:
        holder = self._holder(step_id)
        try:
            entry = holder.entry(step_id) if holder is not None else None
        except IntegrityCheckError as fault:
            self._damaged.add(step_id)
            self._journal.damage.append(fault)
            return None
        if entry is not None:
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[step_id] = entry
        return entry

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._tail or step_id in self._cache or self._holder(step_id) is not None

    def __iter__(self) -> Iterator[int]:
        if not self._sealed_steps:
            return iter(self._tail)
        old = {step_id for generation in self._journal.sealed() for step_id in generation.ids()} - self._tail.keys()
        return chain(sorted(old - self._damaged), self._tail)

    def __len__(self) -> int:
        return self._sealed_steps + len(self._tail)
