"""The arrows between the packages, and what the rim may not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "mmu", "store")
ALLOWED = {"store": {"store"}, "mmu": {"mmu", "store"}, "harness": {"harness", "mmu", "store"}}
# Deep imports across an arrow are for the package's own noun only; `store` is used through its front door.
DOORS = {"mmu": {"store"}}
CLOCKS = {"time", "uuid", "random", "secrets"}


def modules(package: str) -> Iterator[Path]:
    yield from sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            yield node.module or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_arrow_and_never_go_back(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imports(path)
        if name.partition(".")[0] in PACKAGES and name.partition(".")[0] not in ALLOWED[package]
    ]
    assert wrong == []


def test_the_mmu_uses_the_store_through_its_front_door() -> None:
    wrong = [f"{p.name}: {name}" for p in modules("mmu") for name in imports(p) if name.startswith("store.")]
    assert wrong == []


def test_time_and_chance_are_read_in_one_place() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for package in PACKAGES
        for path in modules(package)
        for name in imports(path)
        if name.partition(".")[0] in CLOCKS and path != ROOT / "harness" / "clock.py"
    ]
    assert wrong == []
    chancy = [p for package in PACKAGES for p in modules(package) if "os.urandom" in p.read_text(encoding="utf-8")]
    assert chancy == [ROOT / "store" / "chance.py"]


def test_importing_the_harness_loads_no_model_client_web_server_or_framework() -> None:
    heavy = (
        "litellm",
        "openai",
        "anthropic",
        "httpx",
        "requests",
        "fastapi",
        "starlette",
        "uvicorn",
        "numpy",
        "langchain",
    )
    code = f"import sys, harness; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_hides_a_second_noun() -> None:
    long = {str(p.relative_to(ROOT)): n for k in PACKAGES for p in modules(k) if (n := p.read_text().count("\n")) > 400}
    # The conformance suite is one noun: sixteen tests that are read side by side.
    assert set(long) <= {"harness/conformance.py"}


def test_the_top_level_is_the_one_that_was_agreed() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )
    if not any(tracked):
        pytest.skip("not a git checkout")
    top = {name.partition("/")[0] for name in tracked if name and not name.startswith(".")}
    agreed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
    assert top <= agreed | {"harness", "mmu", "store", "tests", "examples", "fixtures"}
