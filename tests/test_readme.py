"""The README's code runs, and what it says about commands is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_python_block_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_command_of_the_readme_exists() -> None:
    help_text = subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = set(re.findall(r"\bmmu ([a-z]+)\b", README)) - {"decides"}
    assert named <= set(re.findall(r"^\s+([a-z]+)  ", help_text, re.MULTILINE)) | {"run"}
