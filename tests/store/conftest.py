"""What the tests of the store share: steps with fixed times, a look at everything on disk, refusing system calls."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import store
from store import ColdNode, decode_text

SESSION = "refactor-42"


def build(step_id: int, payload: bytes = b"PostgreSQL port 5434 reverted back to Port 5433", **values: Any) -> ColdNode:
    """A step whose every field holds something, with fixed times, so that two calls give the same bytes."""
    fixed: dict[str, Any] = {
        "session": SESSION,
        "payload_kind": "text",
        "rendering": payload.decode("utf-8", "replace"),
        "summary": f"step {step_id}",
        "identifiers": ("5433", "postgresql"),
        "files": ("config.env",),
        "commands": ("psql",),
        "errors": ("DeadlockDetected",),
        "folding_policy_hash": "ab" * 32,
        "timestamp": "2026-01-02T03:04:05Z",
        "folded_at": "2026-01-02T03:05:00Z",
        "tokens": 120,
        "match_key": f"key-{step_id}",
        "sanitized": {"token": 1},
    }
    with contextlib.suppress(UnicodeDecodeError):
        fixed["rendering"] = decode_text(payload).encode("utf-8", "replace").decode()
    return ColdNode.build(step_id=step_id, payload=payload, **{**fixed, **values})


@pytest.fixture(scope="session")
def make() -> Callable[..., ColdNode]:
    """`make(step_id, payload, **fields)` builds a step."""
    return build


@pytest.fixture(scope="session")
def session() -> str:
    """The session that `make` builds for."""
    return SESSION


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Every path below a folder: a file's bytes, a link's target, None for a folder."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Path], dict[str, bytes | str | None]]:
    """`snapshot(folder)` is equal before and after if and only if nothing changed on disk."""
    return tree


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., contextlib.AbstractContextManager[list[str]]]:
    """`refuse(call, errno, path)`: inside, `os.<call>` on that file or folder (or a new file in it) fails, as on a bad disk.

    A failing `pwrite` takes half of the bytes first, as a disk does that fills up. Yields the paths that were refused.
    """

    @contextlib.contextmanager
    def refusing(call: str, number: int, target: Path) -> Iterator[list[str]]:
        genuine = getattr(os, call)
        refused: list[str] = []

        def failing(subject: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(subject, int):
                hit = target.exists() and os.path.samestat(os.fstat(subject), target.stat())
            else:
                hit = Path(subject) == target or Path(subject).parent == target
            if not hit or (refused and call == "pwrite" and len(refused) > 1):
                return genuine(subject, *rest, **options)
            refused.append(str(subject))
            if call == "pwrite" and len(refused) == 1:
                data, offset = rest
                return genuine(subject, data[: len(data) // 2], offset)
            raise OSError(number, os.strerror(number), None if isinstance(subject, int) else str(subject))

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            yield refused

    return refusing


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`child(code, *args)` runs Python code in a process of its own; what still runs at the end of the test is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(store.__file__).parents[1])}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()
