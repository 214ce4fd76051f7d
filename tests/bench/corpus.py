"""A made-up archive of any size, the same on every run: what the scan is measured on.

Terms are drawn by Zipf and Mandelbrot's law (rank r with a probability of 1 / (r + 21) ** 1.05), so that the most frequent
one is in about half of the steps, as after stop words are gone. A fifth of a step's terms comes from a pool of 60 that it
shares with its neighbours, because steps of one task resemble each other. A step has 90 distinct terms on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

TERMS = 600_000
_NEIGHBOURS, _POOL = 50, 60
_BATCH = 10_000
_SYLLABLES = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeio"]


def name(term: int) -> str:
    """How a term is written: four or three syllables, the frequent ones shorter."""
    number = term * 1_237 % 4_096 if term < 4_096 else term * 2_654_435 % 64**4
    return "".join(_SYLLABLES[number >> 6 * at & 63] for at in range(3 if term < 4_096 else 4))


def steps(count: int) -> Iterator[tuple[int, NDArray[np.int64], int]]:
    """Id, terms (distinct, ascending) and cost in tokens of each step. The first n are the same whatever `count` is."""
    total = _cumulative()
    for first in range(0, count, _BATCH):
        dice = np.random.default_rng([7, first])
        sizes = dice.integers(62, 165, _BATCH)
        shared = sizes // 5
        pools = dice.integers(500, TERMS, (_BATCH // _NEIGHBOURS, _POOL))
        own = np.minimum(np.searchsorted(total, dice.random(int((sizes - shared).sum()))), TERMS - 1)
        places = dice.integers(0, _POOL, int(shared.sum()))
        costs = dice.integers(125, 751, _BATCH).tolist()
        own_ends, shared_ends = np.cumsum(sizes - shared).tolist(), np.cumsum(shared).tolist()
        own_begin = shared_begin = 0
        for at in range(min(_BATCH, count - first)):
            pool = pools[at // _NEIGHBOURS, places[shared_begin : shared_ends[at]]]
            terms = np.unique(np.concatenate((own[own_begin : own_ends[at]], pool)))
            own_begin, shared_begin = own_ends[at], shared_ends[at]
            yield first + at, terms, costs[at]


def prompts(archive: Sequence[NDArray[np.int64]], size: int, count: int) -> list[list[str]]:
    """Prompts of `size` distinct terms: 60 % from three steps of the archive, 30 % drawn anew, 10 % never archived."""
    dice, total = np.random.default_rng(11), _cumulative()
    made = []
    for number in range(count):
        sources = dice.integers(0, len(archive), max(3, size // 40))
        known = np.unique(np.concatenate([archive[source] for source in sources.tolist()]))
        kept = {name(term) for term in dice.choice(known, min(size * 6 // 10, known.size), replace=False).tolist()}
        while len(kept) < size - size // 10:
            kept.add(name(min(int(np.searchsorted(total, dice.random())), TERMS - 1)))
        made.append(sorted(kept) + [f"unheard{number}of{at}" for at in range(size // 10)])
    return made


def _cumulative() -> NDArray[np.float64]:
    shares = 1.0 / (np.arange(TERMS) + 21.0) ** 1.05
    return np.cumsum(shares / shares.sum())
