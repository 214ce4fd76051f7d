"""Which archived steps carry a term. Derived from the store's entries; it can be thrown away and rebuilt at any time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol


class Postings(Protocol):
    """What cover and recall ask of an index."""

    def steps(self, term: str) -> Collection[int]:
        """The ids of the steps that carry a term; empty for a term that none carries."""

    def cost(self, step_id: int) -> int:
        """Tokens of a step's rendering."""

    def __contains__(self, step_id: object) -> bool: ...

    def __len__(self) -> int: ...


class DictPostings:
    """An index of dicts and sets, in memory. Steps may come in any order; a step added again replaces its older self."""

    def __init__(self) -> None:
        self._steps: dict[str, set[int]] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._costs: dict[int, int] = {}

    def add(self, step_id: int, identifiers: Iterable[str], cost: int) -> None:
        """Index a step under its terms; `cost` in tokens."""
        self.remove(step_id)
        self._terms[step_id] = tuple(identifiers)
        self._costs[step_id] = cost
        for term in self._terms[step_id]:
            self._steps.setdefault(term, set()).add(step_id)

    def remove(self, step_id: int) -> None:
        """Take a step out; one that is not indexed is no matter."""
        for term in self._terms.pop(step_id, ()):
            self._steps[term].discard(step_id)
        self._costs.pop(step_id, None)

    def steps(self, term: str) -> Collection[int]:
        """See `Postings.steps`."""
        return self._steps.get(term, ())

    def cost(self, step_id: int) -> int:
        """See `Postings.cost`. Raises KeyError for a step that is not indexed."""
        return self._costs[step_id]

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._costs

    def __len__(self) -> int:
        return len(self._costs)
