"""Chance, handed in. This is the one module of the store that names a source of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

Chance = Callable[[int], bytes]
"""Gives so many bytes that nobody can guess."""

system_chance: Chance = os.urandom


def fixed_chance(seed: str = "") -> Chance:
    """The same bytes on every run, for tests and replays. What hides behind them does not stay hidden."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{seed} {drawn}".encode()).digest(size)

    return draw
