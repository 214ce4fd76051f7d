"""What cover and recall ask of an index. An index is made of shards: one in memory that grows, and sealed ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol


class Race(Protocol):
    """The candidates of one shard for one prompt, and what they gain by the weights that are still to be answered."""

    def best(self) -> tuple[int, int]:
        """The highest gain and the step that has it, the newest on a tie. (0, -1) if no step gains."""

    def take(self, step_id: int) -> Collection[str]:
        """The prompt's terms with a weight above 0 that a step of this shard carries. It competes no more."""

    def settle(self, weights: Mapping[str, int], floor: int | None) -> None:
        """From now on these terms count what is given here; if `floor` is a step id, only for newer steps than that."""


class Carriers(Protocol):
    """The steps of one shard that carry each of some terms."""

    def __contains__(self, step_id: int) -> bool: ...

    def newest_first(self) -> Iterator[int]:
        """Their ids, descending."""

    def oldest_first(self) -> Iterator[int]:
        """Their ids, ascending."""


class Costs(Protocol):
    """Some steps and what each costs."""

    def __contains__(self, step_id: object) -> bool: ...

    def cost(self, step_id: int) -> int:
        """Tokens of a step's rendering. Raises KeyError for a step that is not here."""


class Shard(Costs, Protocol):
    """A part of an index. A step is in one shard only."""

    def __len__(self) -> int: ...

    def race(self, prompt: Mapping[str, int], excluded: Collection[int], *, once: bool) -> Race:
        """Start a cover. With `once` all weights are equal, and a term that is answered counts nothing from then on."""

    def carriers(self, terms: Collection[str]) -> Carriers:
        """The steps that carry each of `terms`, at least one."""

    def levels(self, terms: Collection[str]) -> Iterator[tuple[int, Sequence[int]]]:
        """How many of `terms` steps carry, from the most down to 1, and the ids of those that do, ascending."""


class Postings(Protocol):
    """An index of archived steps by their terms."""

    def shards(self) -> Sequence[Shard]:
        """The parts of the index."""

    def races(self, prompt: Mapping[str, int], excluded: Collection[int], *, once: bool) -> list[tuple[Costs, Race]]:
        """Start a cover: races that together hold every step, each with its steps (see `Shard.race`)."""

    def cost(self, step_id: int) -> int:
        """Tokens of a step's rendering. Raises KeyError for a step that is not indexed."""

    def __contains__(self, step_id: object) -> bool: ...

    def __len__(self) -> int: ...
