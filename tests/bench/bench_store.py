"""The store as it grows: what a step costs at 10 and at a million archived ones, hydrate, validate, opening."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest

from harness.cli.options import progress_bar
from store import ColdNode, FileStore, IndexEntry
from store.journal import Journal

SESSION, PAYLOAD_BYTES, PER_GENERATION = "bench", 5_000, 1_000
SIZES = [10, 1_000, 10_000, 100_000, *([1_000_000] if os.environ.get("MMU_BENCH_MILLION") else [])]


def node(step_id: int) -> ColdNode:
    """A step of 5 KB with 100 terms."""
    terms = [f"term{step_id * 7 + number:08d}" for number in range(100)]
    text = (" ".join(terms) + " and words between them ") * 4
    text = text[:PAYLOAD_BYTES].ljust(PAYLOAD_BYTES, ".")
    return ColdNode.build(
        session=SESSION,
        step_id=step_id,
        payload_kind="text",
        payload=text.encode(),
        rendering=text,
        summary=f"step {step_id}",
        identifiers=tuple(terms),
        tokens=1_200,
        match_key=f"{step_id:032x}",
    )


def milliseconds(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return (perf_counter() - begun) * 1000


def grown(root: Path, steps: int) -> FileStore:
    """A session of so many steps. All but the newest thousand have their entries only: no node file is made for them."""
    store = FileStore(root, SESSION)
    journal = Journal(store.folder, SESSION)
    journal.begin()
    with progress_bar(f"{steps:,} entries") as progress:
        for start in range(0, max(0, steps - PER_GENERATION), PER_GENERATION):
            ids = range(start, min(start + PER_GENERATION, steps - PER_GENERATION))
            journal.append(journal.chained([*entries(ids)]), flush=False)
            journal.seal(ids.stop)
            progress(ids.stop, steps)
    store = FileStore(root, SESSION)
    store.archive([node(step_id) for step_id in range(max(0, steps - PER_GENERATION), steps)])
    store.close()
    return store


def entries(step_ids: range) -> Iterator[dict[str, object]]:
    for step_id in step_ids:
        entry = IndexEntry.of(node(step_id), f"cold_nodes/step_{step_id:06d}.json")
        yield {"record": "archive", "entry": entry.document(), "salt": f"{step_id:032x}"}


@pytest.mark.parametrize("sink", [pytest.param(None, id="table")])
def test_the_store_as_it_grows(tmp_path: Path, sink: None) -> None:
    print(
        f"\n{'steps':>9}  {'archive one':>11}  {'in bulk':>7}  {'hydrate':>7}  {'open':>6}  {'1st get':>7}  ms; memory MB"
    )
    firsts: list[float] = []
    for steps in SIZES:
        grown(tmp_path / str(steps), steps)
        opening = milliseconds(lambda: FileStore(tmp_path / str(steps), SESSION))  # noqa: B023
        store = FileStore(tmp_path / str(steps), SESSION)
        first = milliseconds(lambda: store.get(steps - 5))  # noqa: B023
        reads = [milliseconds(lambda: store.get(step)) for step in range(max(0, steps - 500), steps)]  # noqa: B023
        fresh = [node(step) for step in range(steps, steps + 320)]
        ones = [milliseconds(lambda: store.archive([one])) for one in fresh]  # noqa: B023
        bulk = [node(step) for step in range(steps + 320, steps + 1_320)]
        in_bulk = milliseconds(lambda: (store.archive(bulk), store.flush())) / len(bulk)  # noqa: B023
        firsts.append(sum(ones) / len(ones))
        print(
            f"{steps:>9,}  {firsts[-1]:>11.3f}  {in_bulk:>7.3f}  {median(reads):>7.3f}  {opening:>6.2f}  {first:>7.2f}"
            f"      {resident():.0f}"
        )
    print(
        f"archive one: {firsts[-1] / firsts[0]:.2f} times the price at {SIZES[-1]:,} steps of that at {SIZES[0]} (mean)"
    )


def test_validate_ten_thousand_nodes(tmp_path: Path) -> None:
    with FileStore(tmp_path, SESSION) as store:
        with progress_bar("10,000 nodes") as progress:
            for start in range(0, 10_000, 1_000):
                store.archive([node(step) for step in range(start, start + 1_000)])
                progress(start + 1_000, 10_000)
        times = [milliseconds(store.validate) for _ in range(3)]
        assert store.validate().faults == ()
    print(f"\nvalidate 10,000 nodes, {10_000 * PAYLOAD_BYTES / 1e6:.0f} MB of payload: best {min(times):.0f} ms of 3")


def resident() -> float:
    """Megabytes of memory that this process holds."""
    status = Path("/proc/self/status")
    if sys.platform != "linux" or not status.exists():
        return float("nan")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
