"""The store as it grows: what a step costs at 10 and at a million archived ones, hydrate, validate, opening."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from harness.cli.options import progress_bar
from mmu.policy import HydrationPolicy
from mmu.tokens import EstimateMeter
from mmu.unit import MMU
from store import ColdNode, FileStore, IndexEntry
from store.journal import Journal

SESSION, PAYLOAD_BYTES, PER_GENERATION = "bench", 5_000, 1_000
SIZES = [10, 1_000, 10_000, 100_000, *([1_000_000] if os.environ.get("MMU_BENCH_MILLION") else [])]


def node(step_id: int) -> ColdNode:
    """A step of 5 KB with 100 terms: 90 of a vocabulary of 300,000, and 10 that it shares with its neighbours only."""
    terms = [f"word{(step_id * 7_919 + number * 104_729) % 300_000:06d}" for number in range(90)]
    terms += [f"name{step_id // 50 * 10 + number:08d}" for number in range(10)]
    text = (" ".join(terms) + " and words between them ") * 4
    text = text[:PAYLOAD_BYTES].ljust(PAYLOAD_BYTES, ".")
    return ColdNode.build(
        session=SESSION,
        step_id=step_id,
        payload_kind="text",
        payload=text.encode(),
        rendering=text,
        summary=f"step {step_id}",
        identifiers=tuple(sorted(terms)),
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


def test_the_store_as_it_grows(tmp_path: Path) -> None:
    print(f"\n{'steps':>9}  archive one   in bulk  hydrate       ms each, 5 KB")
    ones_at: list[float] = []
    for steps in SIZES:
        grown(tmp_path / str(steps), steps)
        store = FileStore(tmp_path / str(steps), SESSION)
        reads = [milliseconds(partial(store.get, step_id)) for step_id in range(max(0, steps - 500), steps)]
        fresh = [node(step_id) for step_id in range(steps, steps + 1_320)]
        ones = [milliseconds(partial(store.archive, [one])) for one in fresh[:320]]
        in_bulk = milliseconds(lambda: (store.archive(fresh[320:]), store.flush())) / 1_000  # noqa: B023
        ones_at.append(sum(ones) / len(ones))
        print(f"{steps:>9,}  {ones_at[-1]:>11.3f}  {in_bulk:>8.3f}  {median(reads):>7.3f}")
    ratio = ones_at[-1] / ones_at[0]
    print(f"archive one, in the mean, at {SIZES[-1]:,} steps : at {SIZES[0]}  =  {ratio:.2f}")


def test_opening_and_the_first_scan(tmp_path: Path) -> None:
    """In a process of its own, which did nothing before."""
    print(f"\n{'steps':>9}  open store  open index  1st scan  2nd scan   ms; resident MB")
    for steps in SIZES[1:]:
        root = tmp_path / str(steps)
        grown(root, steps)
        with progress_bar(f"indexing {steps:,} steps") as progress:
            MMU(FileStore(root, SESSION), HydrationPolicy(), EstimateMeter(), lambda: "", progress)
        told = subprocess.run([sys.executable, "-c", _OPENING, root], capture_output=True, text=True, check=True).stdout
        print(f"{steps:>9,}  " + told.strip())


_OPENING = """
import sys, time
from pathlib import Path
import numpy
from mmu.policy import HydrationPolicy
from mmu.tokens import EstimateMeter
from mmu.unit import MMU
from store import FileStore

def took(work):
    begun = time.perf_counter()
    return work(), (time.perf_counter() - begun) * 1000

store, opening = took(lambda: FileStore(Path(sys.argv[1]), "bench"))
mmu, index = took(lambda: MMU(store, HydrationPolicy(), EstimateMeter(), lambda: ""))
last = max(mmu.store.recent(store.version.count - 5), key=lambda entry: entry.step_id)
prompt = " ".join(last.identifiers[:40])
scan, first = took(lambda: mmu.scan(prompt))
again, second = took(lambda: mmu.scan(prompt))
assert scan.pieces, scan
status = Path("/proc/self/status")
memory = [int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS")]
print(f"{opening:>10.2f}  {index:>10.2f}  {first:>8.2f}  {second:>8.2f}       {memory[0]:.0f}")
"""


def test_validate_ten_thousand_nodes(tmp_path: Path) -> None:
    with FileStore(tmp_path, SESSION) as store:
        with progress_bar("10,000 nodes") as progress:
            for start in range(0, 10_000, 1_000):
                store.archive([node(step) for step in range(start, start + 1_000)])
                progress(start + 1_000, 10_000)
        times = [milliseconds(store.validate) for _ in range(3)]
        assert store.validate().faults == ()
    print(f"\nvalidate 10,000 nodes, {10_000 * PAYLOAD_BYTES / 1e6:.0f} MB of payload: best {min(times):.0f} ms of 3")
