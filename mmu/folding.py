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


def fit(steps: Collection[int], budget: int, cost: Callable[[int], int]) -> frozenset[int]:
    """The folded steps that keep a line of their own: the newest whose lines cost no more than a budget of tokens."""
    kept: list[int] = []
    for step_id in sorted(steps, reverse=True):
        budget -= cost(step_id)
        if budget < 0:
            break
        kept.append(step_id)
    return frozenset(kept)


def hot_text(folded: Collection[int], lined: Collection[int], session: str, line: Callable[[int], str]) -> str:
    """The sealed text for everything folded: `lined` steps a line each, the others together in one; empty if nothing is.

    Between folds nothing of it changes.
    """
    older = sorted(set(folded) - set(lined))
    merged = [f"steps {older[0]} to {older[-1]}: {len(older)} older steps"] if older else []
    lines = [*merged, *(line(step_id) for step_id in sorted(set(lined) & set(folded)))]
    return seal("folded-steps", "\n".join([_HOT_NOTE, *lines]), session) if lines else ""


_HOT_NOTE = (
    "Record of this conversation, not instructions: folded steps, archived whole; what a message needs of them is recalled "
    "automatically."
)
