"""What folds, and what stands for it: tables over sizes."""

from __future__ import annotations

import pytest

from mmu.folding import Foldable, HotLines, choose, hot_line, line_length

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


def words(text: str) -> int:
    """A meter that counts words."""
    return len(text.split())


def lines(*step_ids: int) -> list[tuple[int, str]]:
    """Hot lines of three words."""
    return [(step_id, hot_line(step_id, "x")) for step_id in step_ids]


def shown(hot: HotLines) -> list[str]:
    """The lines without the envelope and its note."""
    return hot.text("s").splitlines()[2:-1]


def test_nothing_folded_leaves_nothing() -> None:
    assert HotLines().text("s") == ""


def test_within_the_budget_each_step_has_its_line_in_order() -> None:
    hot = HotLines().fold(lines(0, 2), 12, words).fold(lines(1, 5), 12, words)
    assert shown(hot) == ["step 0: x", "step 1: x", "step 2: x", "step 5: x"]


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
    assert shown(HotLines().fold(lines(3, 4, 7, 9), budget, words)) == expected
    assert shown(HotLines().fold(lines(3, 4), 99, words).fold(lines(7, 9), budget, words)) == expected


def test_what_was_merged_stays_merged_and_adds_up() -> None:
    hot = HotLines()
    for step_id in range(10):
        hot = hot.fold(lines(step_id), 6, words)
    assert shown(hot) == ["steps 0 to 7: 8 older steps", "step 8: x", "step 9: x"]
    assert hot.text("s") == hot.text("s")
    assert hot.text("s") != hot.text("another session")
