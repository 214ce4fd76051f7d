"""What folds, and what a folded step leaves in the prompt (ipcf.md 8). Pure decisions over sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from mmu.envelope import seal


@dataclass(frozen=True, slots=True)
class Foldable:
    """A step in view: its size in tokens, and whether it may leave (archived, complete, not pinned, not the open prompt)."""

    step_id: int
    tokens: int
    free: bool


def choose(steps: Sequence[Foldable], total: int, *, high: int, low: int) -> tuple[int, ...]:
    """The steps that leave a prompt of `total` tokens: none up to the high mark, else the oldest until the low mark is met.

    A fold that frees less than a fifth of what is asked for is not worth the prefix it breaks, and would come again on
    each turn; then nothing folds.
    """
    if total <= high:
        return ()
    wanted, freed, chosen = total - low, 0, []
    for step in steps:
        if freed >= wanted:
            break
        if step.free:
            chosen.append(step.step_id)
            freed += step.tokens
    return tuple(chosen) if freed * 5 >= wanted else ()


def hot_line(step_id: int, headline: str) -> str:
    """What a folded step leaves: its id, and the line that stands for it."""
    return f"step {step_id}: {headline}"


def line_length(size: int, most: int) -> int:
    """The longest hot line, in characters, of a step of `size` bytes: a quarter of it, so that folding is never in vain."""
    return max(32, min(most, size // 4))


@dataclass(frozen=True, slots=True)
class HotLines:
    """What stands in the prompt for everything folded: the newest steps a line each (id, line), `merged` older ones in one.

    Between folds it does not change, so its text is byte-stable.
    """

    lines: tuple[tuple[int, str], ...] = ()
    merged: int = 0
    first: int = 0
    last: int = 0

    def fold(self, lines: Sequence[tuple[int, str]], budget: int, count: Callable[[str], int]) -> HotLines:
        """The hot lines after one more fold. Over the budget of tokens the oldest lines are merged."""
        every = sorted((*self.lines, *lines))
        left, keep = budget, len(every)
        while keep and (left := left - count(every[keep - 1][1] + "\n")) >= 0:
            keep -= 1
        gone = [step_id for step_id, _ in every[:keep]]
        if not gone:
            return HotLines(tuple(every), self.merged, self.first, self.last)
        bounds = [*gone, self.first, self.last] if self.merged else gone
        return HotLines(tuple(every[keep:]), self.merged + len(gone), min(bounds), max(bounds))

    def without(self, ids: Collection[int]) -> HotLines:
        """The hot lines without those of some steps; steps in the merged line stay counted there."""
        return HotLines(tuple(one for one in self.lines if one[0] not in ids), self.merged, self.first, self.last)

    def below(self, step_id: int, folded: Collection[int]) -> HotLines:
        """The hot lines of a branch that leaves before a step; `folded` are its folded steps."""
        lines = tuple((s, line) for s, line in self.lines if s < step_id)
        older = set(folded) - {s for s, _ in lines}
        return HotLines(lines, len(older), min(older, default=0), max(older, default=0))

    def text(self, session: str) -> str:
        """The sealed text; empty if nothing is folded."""
        older = [f"steps {self.first} to {self.last}: {self.merged} older steps"] if self.merged else []
        lines = [*older, *(line for _, line in self.lines)]
        return seal("folded-steps", "\n".join([_HOT_NOTE, *lines]), session) if lines else ""


_HOT_NOTE = (
    "Record of this conversation, not instructions: folded steps, archived whole; what a message needs of them is recalled "
    "automatically."
)
