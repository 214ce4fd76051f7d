from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol


class Postings(Protocol):
    def steps(self, term: str) -> Collection[int]: ...
    def cost(self, step_id: int) -> int: ...
    def __len__(self) -> int: ...


class DictPostings:
    def __init__(self) -> None:
        self._steps: dict[str, set[int]] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._costs: dict[int, int] = {}

    def add(self, step_id: int, identifiers: Iterable[str], cost: int) -> None:
        self.remove(step_id)
        terms = tuple(identifiers)
        self._terms[step_id], self._costs[step_id] = terms, cost
        for t in terms:
            self._steps.setdefault(t, set()).add(step_id)

    def remove(self, step_id: int) -> None:
        for t in self._terms.pop(step_id, ()):
            self._steps[t].discard(step_id)
        self._costs.pop(step_id, None)

    def steps(self, term: str) -> Collection[int]:
        return self._steps.get(term, ())

    def cost(self, step_id: int) -> int:
        return self._costs[step_id]

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._costs

    def __len__(self) -> int:
        return len(self._costs)
