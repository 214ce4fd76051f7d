"""How the time of `extract` grows: twice the text, about twice the time, whatever the text is."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable

import pytest

from mmu.terms import extract

SIZE = 500_000
SHAPES: dict[str, Callable[[int], str]] = {
    "base64": lambda size: base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode(),
    "words": lambda size: " ".join(f"{number:x}" for number in random.Random(1).choices(range(1 << 40), k=size // 11)),
    **{
        repeated: lambda size, repeated=repeated: repeated * (size // len(repeated))
        for repeated in (
            "/",
            ".",
            " ",
            "a",
            "(a/",
            "a.",
            "_",
            "-",
            "\n",
            "$ ",
            "C:/",
            "\u0301\u0323",
            "汉a",
            "─",
            "EError.",
            '"',
            "data:",
        )
    },
}


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        extract("", text)
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.parametrize("shape", SHAPES)
def test_extract_is_linear(shape: str) -> None:
    once, twice = (seconds(SHAPES[shape](size)) for size in (SIZE, 2 * SIZE))
    print(f"{shape!a:20} {1e3 * once:8.1f} ms, ratio {twice / once:.2f}")
    assert twice < 3.5 * once + 0.05
