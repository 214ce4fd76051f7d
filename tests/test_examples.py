"""Every example runs offline, in an empty folder, and shows what its docstring promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWS = {
    "quickstart.py": "came back: step 1 for port/relay",
    "own_loop.py": "sent: It was set to logical.",
    "tool_loop.py": "in place [3], evicted [3]",
    "streaming.py": "['answered', 'partial']",
    "async_calls.py": "['right: three']",
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_an_example_runs_offline_and_shows_its_point(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SHOWS[name] in done.stdout
    assert list(tmp_path.iterdir()) == []
