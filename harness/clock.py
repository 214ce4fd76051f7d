"""Time, handed in. This is the one module that reads a clock; everything else is given one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall` gives seconds since 1970, `timer` milliseconds from any origin (for durations, never compared)."""

    wall: Callable[[], float]
    timer: Callable[[], float]

    def now(self) -> str:
        """The time as ISO 8601, UTC, to the second."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def system_clock() -> Clock:
    """The machine's clock."""
    return Clock(time.time, lambda: time.perf_counter() * 1000)


def fixed_clock(start: float = 1_750_000_000.0, step: float = 0.0) -> Clock:
    """A clock that stands still, or moves `step` seconds at each look: with it a session is reproducible byte for byte."""
    ticks = 0

    def wall() -> float:
        nonlocal ticks
        ticks += 1
        return start + step * (ticks - 1)

    return Clock(wall, lambda: 0.0)
