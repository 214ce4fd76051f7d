"""The two hooks at 200 archived steps, and the import: what a call pays for the harness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from harness import Harness, HydrationPolicy, ScriptedClient
from harness.recorded import conversation
from harness.scenario import messages
from store import MemoryStore


def test_hooks_at_200_steps(tmp_path: Path) -> None:
    for place in ("memory", "disk"):
        times: list[float] = []
        for run in range(5):
            store = MemoryStore("bench") if place == "memory" else tmp_path / f"{run}"
            times += both_hooks(store)
        sizes = f"median {median(times):.2f} ms, best {min(times):.2f}, worst {max(times):.2f}, {len(times)} calls"
        print(f"\nboth hooks at 190 to 230 archived steps, store in {place}: {sizes}")
        assert times


def both_hooks(store: Path | MemoryStore) -> list[float]:
    """Milliseconds of both hooks together, for each call of the scenario at 190 to 230 archived steps."""
    policy = HydrationPolicy(high_water_tokens=8_000, low_water_tokens=2_500, hot_line_tokens=600)
    times: list[float] = []
    with Harness.open(store, session="bench", policy=policy, client=ScriptedClient([])) as memory:
        for asked in conversation("s", {"messages": messages()}).calls:
            steps = len(memory.store.entries)
            begun = perf_counter()
            dispatch = memory.pre_turn_dispatch(asked.history)
            memory.post_turn_response(dispatch, asked.reply)
            if 190 <= steps <= 230:
                times.append((perf_counter() - begun) * 1000)
            if steps > 230:
                return times
    return times


def test_import_of_the_harness() -> None:
    command = [
        sys.executable,
        "-c",
        "import time; t = time.perf_counter(); import harness; print(time.perf_counter() - t)",
    ]
    seconds = sorted(
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5)
    )
    print(f"\nimport harness: median {seconds[2] * 1000:.0f} ms, best {seconds[0] * 1000:.0f} ms of 5")
    assert seconds
