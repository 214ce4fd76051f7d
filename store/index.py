"""The page table of a session: the entries of the open generation in memory, those of the sealed ones on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from store.errors import IntegrityCheckError
from store.node import IndexEntry
from store.sealed import Sealed

_CACHED = 4_096  # entries of sealed generations that are kept at hand


class Index(Mapping[int, IndexEntry]):
    """Entries by step id. `sealed` gives the sealed generations, oldest first, when one of them is needed; `sealed_steps`
    is how many steps they hold; a record of theirs that does not read is told to `on_damage`, and its step has no entry."""

    def __init__(
        self,
        sealed: Callable[[], Sequence[Sealed]],
        sealed_steps: int,
        on_damage: Callable[[IntegrityCheckError], None],
    ) -> None:
        self._sealed, self._sealed_steps, self._on_damage = sealed, sealed_steps, on_damage
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
        return next((one for one in reversed(self._sealed()) if one.place(step_id) is not None), None)

    def _look_up(self, step_id: int) -> IndexEntry | None:
        holder = self._holder(step_id)
        try:
            entry = holder.entry(step_id) if holder is not None else None
        except IntegrityCheckError as fault:
            self._damaged.add(step_id)
            self._on_damage(fault)
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
        old = {step_id for generation in self._sealed() for step_id in generation.ids()} - self._tail.keys()
        return chain(sorted(old - self._damaged), self._tail)

    def __len__(self) -> int:
        return self._sealed_steps + len(self._tail)
