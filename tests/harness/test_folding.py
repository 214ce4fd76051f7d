"""What folds, and what stands for it: tables over sizes."""

from __future__ import annotations

import pytest

from mmu.folding import Foldable, choose, fit, hot_line, hot_text, line_length

# Sizes of steps in tokens; a negative one may not leave. (sizes, high mark, low mark, steps that leave)
CHOICES = {
    "nothing there": ([], 100, 50, ()),
    "at the high mark": ([50, 50], 100, 10, ()),
    "above it": ([50, 50, 1], 100, 50, (0, 1)),
    "until the low mark is met": ([40, 40, 40], 100, 80, (0,)),
    "a token short of it": ([39, 40, 41], 100, 80, (0, 1)),
    "the oldest that may": ([-40, 40, -40, 40, 40], 100, 120, (1, 3)),
    "all that may, though it is not enough": ([-20, 80, -30], 100, 10, (1,)),
    "nothing may": ([-90, -90], 100, 50, ()),
    "too little to be worth it": ([-100, 10, -100], 100, 50, ()),
    "a fifth is worth it": ([-100, 40, -110], 100, 50, (1,)),
    "low mark zero": ([60, 60], 100, 0, (0, 1)),
}


@pytest.mark.parametrize("case", CHOICES)
def test_above_the_high_mark_the_oldest_leave_until_the_low_one_is_met(case: str) -> None:
    sizes, high, low, leave = CHOICES[case]
    steps = [Foldable(step_id, abs(size), size > 0) for step_id, size in enumerate(sizes)]
    assert choose(steps, sum(map(abs, sizes)), high=high, low=low) == leave


@pytest.mark.parametrize(
    ("size", "most", "length"), [(0, 280, 32), (128, 280, 32), (400, 280, 100), (10_000, 280, 280)]
)
def test_a_hot_line_is_a_quarter_of_its_step_at_most(size: int, most: int, length: int) -> None:
    assert line_length(size, most) == length


def shown(folded: set[int], lined: set[int]) -> list[str]:
    """The lines without the envelope and its note."""
    return hot_text(folded, lined, "s", lambda step_id: hot_line(step_id, "x")).splitlines()[2:-1]


def test_nothing_folded_leaves_nothing() -> None:
    assert hot_text((), (), "s", str) == ""


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (12, ["step 3: x", "step 4: x", "step 7: x", "step 9: x"]),
        (11, ["steps 3 to 3: 1 older steps", "step 4: x", "step 7: x", "step 9: x"]),
        (6, ["steps 3 to 4: 2 older steps", "step 7: x", "step 9: x"]),
        (2, ["steps 3 to 9: 4 older steps"]),
        (0, ["steps 3 to 9: 4 older steps"]),
    ],
)
def test_over_the_budget_the_oldest_become_one_line(budget: int, expected: list[str]) -> None:
    folded = {9, 3, 7, 4}
    assert shown(folded, set(fit(folded, budget, lambda _: 3))) == expected


def test_what_was_merged_stays_merged_and_adds_up() -> None:
    folded: set[int] = set()
    lined: frozenset[int] = frozenset()
    for step_id in range(10):
        folded.add(step_id)
        lined = fit(lined | {step_id}, 6, lambda _: 3)
    assert shown(folded, set(lined)) == ["steps 0 to 7: 8 older steps", "step 8: x", "step 9: x"]
    texts = {hot_text(folded, lined, session, str) for session in ("s", "s", "another session")}
    assert len(texts) == 2
