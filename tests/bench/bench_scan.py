"""Choosing steps for a prompt of 40 words: ours beside the plain definition, SQLite FTS5, tantivy and bm25s, in one run.

MMU_BENCH_MILLION=1 adds an archive of a million steps (some ten minutes, 8 GB). Also measured: opening from a file, resident
memory, and what adding costs. A search engine returns its ten best; ours returns the whole selection.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from corpus import name, prompts, steps
from naive_cover import NaivePostings, naive_cover
from numpy.typing import NDArray
from rich.console import Console

from harness.cli.options import progress_bar, table
from mmu.cover import cover
from mmu.postings import Index
from mmu.postings.seal import of_many
from mmu.postings.sealed import Sealed
from mmu.postings.segment import Segment, Stamp

MILLION = os.environ.get("MMU_BENCH_MILLION") == "1"
SIZES = (1_000, 10_000, 100_000, *((1_000_000,) if MILLION else ()))
BUDGET = {"turn_budget": 3500, "call_cap": 3000}
SECONDS = 4.0
"""Spent on one engine at one size, about."""

Step = tuple[int, NDArray[np.int32], int]
Engine = Callable[[Sequence[str]], object]


class Skipped(Exception):
    """An engine that cannot take part, and why."""


@dataclass(frozen=True)
class Archive:
    """Made-up steps, and how their terms are written."""

    steps: Sequence[Step]
    names: Sequence[str]

    def rows(self) -> Iterable[tuple[int, list[str], int]]:
        return ((step_id, [self.names[term] for term in terms.tolist()], cost) for step_id, terms, cost in self.steps)


def ours(archive: Archive, folder: Path) -> Engine:
    """A sealed segment in a file, and behind it the tail that a session has on average."""
    index, split = Index(), max(len(archive.steps) - 500, 0) if len(archive.steps) > 1_000 else 0
    rows = iter(archive.rows())
    if split:
        data = of_many((next(rows) for _ in range(split)), split, Stamp())
        path = folder / "ours.segment"
        path.write_bytes(data)
        index.sealed = [Sealed(Segment(mapped(path)))]
    for step_id, terms, cost in rows:
        index.tail.add(step_id, terms, cost)
    return lambda words: cover(dict.fromkeys(words, 1), index, **BUDGET)


def naive(archive: Archive, folder: Path) -> Engine:
    if len(archive.steps) > 100_000:
        raise Skipped("its sets do not fit into memory")
    postings = NaivePostings()
    for step_id, terms, cost in archive.rows():
        postings.add(step_id, terms, cost)
    return lambda words: naive_cover(dict.fromkeys(words, 1), postings, **BUDGET)


def fts5(archive: Archive, folder: Path) -> Engine:
    base = sqlite3.connect(folder / "fts5.db")
    base.execute("create virtual table step using fts5(body, content='')")
    base.executemany(
        "insert into step (rowid, body) values (?, ?)", ((i + 1, " ".join(t)) for i, t, _ in archive.rows())
    )
    base.execute("insert into step (step) values ('optimize')")
    base.commit()
    query = "select rowid from step where step match ? order by rank limit 10"
    return lambda words: base.execute(query, (" OR ".join(words),)).fetchall()


def tantivy(archive: Archive, folder: Path) -> Engine:
    try:
        import tantivy as engine
    except ImportError:
        raise Skipped("not installed (group `bench`)") from None
    schema = engine.SchemaBuilder()
    schema.add_unsigned_field("id", stored=True)
    schema.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    (folder / "tantivy").mkdir()
    index = engine.Index(schema.build(), str(folder / "tantivy"))
    writer = index.writer(256_000_000)
    for step_id, terms, _ in archive.rows():
        writer.add_document(engine.Document(id=step_id, body=[" ".join(terms)]))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    return lambda words: searcher.search(index.parse_query(" ".join(words), ["body"]), 10).hits


def bm25s(archive: Archive, folder: Path) -> Engine:
    try:
        import bm25s as engine
    except ImportError:
        raise Skipped("not installed (group `bench`)") from None
    if len(archive.steps) > 100_000:
        raise Skipped("its index takes more memory than most machines have")
    index = engine.BM25()
    index.index([terms for _, terms, _ in archive.rows()], show_progress=False)
    return lambda words: index.retrieve([list(words)], k=10, show_progress=False)


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


ENGINES = (ours, tantivy, bm25s, fts5, naive)


def milliseconds(engine: Engine, asked: Sequence[Sequence[str]]) -> list[float]:
    """Each scan's time. Every prompt is asked up to three times; the first is a warm-up and does not count."""
    engine(asked[0])
    times: list[float] = []
    for words in [*asked, *asked, *asked]:
        begun = perf_counter()
        engine(words)
        times.append((perf_counter() - begun) * 1000)
        if len(times) >= 5 and sum(times) > SECONDS * 1000:
            break
    return times


@pytest.fixture(scope="module")
def made() -> Archive:
    with progress_bar("making steps") as progress:
        kept: list[Step] = []
        for step_id, terms, cost in steps(SIZES[-1]):
            kept.append((step_id, terms.astype(np.int32), cost))
            if step_id % 1000 == 0:
                progress(step_id, SIZES[-1])
    return Archive(kept, [name(term) for term in range(600_000)])


def test_scan(made: Archive, tmp_path: Path) -> None:
    rows = table("steps", "engine", "#build s", "#p50 ms", "#p99 ms", "#p50 / ours", title="A prompt of 40 words")
    with progress_bar("measuring") as progress:
        for number, size in enumerate(SIZES):
            archive = Archive(made.steps[:size], made.names)
            asked = prompts([terms for _, terms, _ in archive.steps], 40, 100)
            own: list[float] = []
            answers: dict[str, Engine] = {}
            for at, build in enumerate(ENGINES):
                folder = tmp_path / f"{size}-{build.__name__}"
                folder.mkdir()
                begun = perf_counter()
                try:
                    engine = build(archive, folder)
                except Skipped as reason:
                    rows.add_row(f"{size:,}", build.__name__, "", "", "", f"skipped: {reason}")
                    continue
                built = perf_counter() - begun
                gc.collect()
                gc.freeze()  # no engine pays for the archive that we hold
                times = milliseconds(engine, asked)
                gc.unfreeze()
                own = own or times
                median, worst = np.percentile(times, (50, 99))
                ratio = f"{median / np.percentile(own, 50):,.1f}"
                rows.add_row(f"{size:,}", build.__name__, f"{built:.1f}", f"{median:.3f}", f"{worst:.3f}", ratio)
                if build in (ours, naive):
                    answers[build.__name__] = engine
                progress(number * len(ENGINES) + at + 1, len(SIZES) * len(ENGINES))
            if len(answers) == 2:
                for words in asked[:20]:
                    assert answers["ours"](words) == answers["naive"](words)
            answers.clear()
            gc.collect()
    Console(width=110).print("\n", rows)


def test_archiving_costs_the_same_at_every_size(made: Archive) -> None:
    """What the index costs a step, from an empty archive up to the largest, and the longest pause."""
    index = Index()
    rows = table("steps up to", "#mean µs per step", "#longest pause ms", title="Adding steps to the index, in memory")
    pauses: list[float] = []
    total, first = len(made.steps), 0
    with progress_bar("adding steps") as progress:
        for size in (100, *SIZES):
            for step_id, terms, cost in Archive(made.steps[first:size], made.names).rows():
                begun = perf_counter()
                index.add(step_id, terms, cost)
                pauses.append((perf_counter() - begun) * 1000)
                if step_id % 1000 == 0:
                    progress(step_id, total)
            rows.add_row(f"{size:,}", f"{sum(pauses) / len(pauses) * 1000:.0f}", f"{max(pauses):.0f}")
            pauses.clear()
            first = size
    Console(width=110).print("\n", rows)
    assert len(index) == total


OPENED = """
import json, mmap, sys
from time import perf_counter
import numpy
from mmu.cover import cover
from mmu.postings import Index
from mmu.postings.sealed import Sealed
from mmu.postings.segment import Segment

def resident():
    with open("/proc/self/status") as status:
        return {line.split()[0]: int(line.split()[1]) // 1024 for line in status if line.startswith("Rss")}

asked = json.load(open(sys.argv[2]))
before = resident()
begun = perf_counter()
index = Index()
with open(sys.argv[1], "rb") as file:
    index.sealed = [Sealed(Segment(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))]
opened = perf_counter()
for number, words in enumerate(asked):
    cover(dict.fromkeys(words, 1), index, turn_budget=3500, call_cap=3000)
    if number == 0:
        scanned = perf_counter()
after = resident()
print(f"opened in {(opened - begun) * 1000:.1f} ms, first scan {(scanned - opened) * 1000:.1f} ms; "
      f"MB resident before: {before}, after {len(asked)} scans: {after}")
"""


def test_opening_from_a_file(made: Archive, tmp_path: Path) -> None:
    path, words = tmp_path / "a.segment", tmp_path / "prompts.json"
    path.write_bytes(of_many(made.rows(), len(made.steps), Stamp()))
    words.write_text(json.dumps(prompts([terms for _, terms, _ in made.steps], 40, 200)))
    command = [sys.executable, "-c", OPENED, str(path), str(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"\n{len(made.steps):,} steps, a file of {path.stat().st_size / 1e6:.0f} MB: {done.stdout.strip()}")
