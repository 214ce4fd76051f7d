"""Real processes on one session: killed at any moment, and writing and reading at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import FileStore, StoreLockedError

LONG = bool(os.environ.get("MMU_LONG"))
CANARY = b"KANARIE-8931"
FOLDER = Path(__file__).parent

# Archives steps in all ways and says which are acknowledged; every seventh is forgotten again.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from conftest import build
from store import FileStore

root, first, count = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = FileStore(root, "refactor-42", seal_bytes=20_000)
step = first
while step < first + count:
    later = [step + n for n in range(step % 3 + 1) if step + n < first + count]
    for one in later:
        store.archive([build(one, b"payload %d" % one)], flush=len(later) == 1)
    if len(later) > 1:
        store.flush()
    print("kept", *later, flush=True)
    if step % 7 == 0:
        secret = 10**6 + step
        store.archive([build(secret, b"KANARIE-8931 %d" % secret)])
        store.forget([secret], at="2026-12-01T00:00:00Z")
        print("forgot", secret, flush=True)
    step += len(later)
store.close()
print("done", flush=True)
"""

READER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from store import FileStore, NodeNotFoundError

store = FileStore(Path(sys.argv[2]), "refactor-42")
seen = set()
print("ready", flush=True)
while (line := sys.stdin.readline()) and not line.startswith("stop"):
    for entry in store.refresh():
        seen.add(entry.step_id)
    for step in sorted(seen)[-20:]:
        try:
            assert store.get(step).step_id == step
        except NodeNotFoundError:
            assert step >= 10**6, step  # it was forgotten meanwhile
    print("looked", flush=True)
store.refresh()
missing = [step for step in seen if step not in store.entries and step < 10**6]
faults = store.validate().faults
print("end", len(store.entries), missing, faults, flush=True)
"""


def process(code: str, root: Path, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(FOLDER), str(root), *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lines(child: subprocess.Popen[str]) -> Iterator[list[str]]:
    assert child.stdout is not None
    return (line.split() for line in child.stdout)


def test_a_process_that_is_killed_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    dice = random.Random(8931)
    kept: set[int] = set()
    forgotten: set[int] = set()
    for number in range(500 if LONG else 30):
        child = process(WRITER, tmp_path, number * 100, 100)
        patience = dice.randrange(1, 40)
        for at, (what, *steps) in enumerate(lines(child)):
            kept |= set(map(int, steps)) if what == "kept" else set()
            forgotten |= set(map(int, steps)) if what == "forgot" else set()
            if at == patience:
                child.send_signal(signal.SIGKILL)
                break
        child.communicate()
        store = FileStore(tmp_path, "refactor-42")
        assert kept <= set(store.entries)
        assert forgotten.isdisjoint(store.entries)
        for step_id in [*dice.sample(sorted(kept), min(20, len(kept))), *sorted(store.entries)[-5:]]:
            store.get(step_id)
        if number % 10 == 9:
            assert store.validate().faults == ()
        living = {s for s in store.entries if s >= 10**6}  # archived, and not forgotten when it was killed
        store.forget(living, at="2026-12-01T00:00:00Z")
        store.close()
    store = FileStore(tmp_path, "refactor-42")
    assert store.validate().faults == ()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY in path.read_bytes()]


def test_many_write_and_read_at_once_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    writers, readers, each = (8, 4, 250) if LONG else (3, 1, 40)
    FileStore(tmp_path, "refactor-42").close()
    reading = [process(READER, tmp_path) for _ in range(readers)]
    for reader in reading:
        assert next(lines(reader)) == ["ready"]
    writing = [process(WRITER, tmp_path, number * 10_000, each) for number in range(writers)]
    kept: set[int] = set()
    for number, writer in enumerate(writing):
        for what, *steps in lines(writer):
            if what == "kept":
                kept |= set(map(int, steps))
            for reader in reading[number % readers :: writers]:
                assert reader.stdin is not None
                reader.stdin.write("look\n")
                reader.stdin.flush()
                assert next(lines(reader)) == ["looked"]
        assert writer.wait() == 0
    assert len(kept) == writers * each
    for reader in reading:
        out, _ = reader.communicate("stop\n")
        assert out.split(maxsplit=2)[:2] == ["end", str(len(kept))], out
        assert out.endswith("[] ()\n"), out
    store = FileStore(tmp_path, "refactor-42")
    assert set(store.entries) == kept
    links = [store.link_at(count) for count in range(store.version.count + 1)]
    assert len(set(links)) == len(links)
    assert all(store.get(step_id).payload == b"payload %d" % step_id for step_id in kept)


HOLDER = """
import sys
from pathlib import Path
from store import FileStore
store = FileStore(Path(sys.argv[2]), "refactor-42")
with store._lock.held():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_held_too_long_names_its_owner_and_ends_with_it(tmp_path: Path) -> None:
    holder = process(HOLDER, tmp_path)
    assert next(lines(holder)) == ["held"]
    store = FileStore(tmp_path, "refactor-42", lock_seconds=0.05)
    with pytest.raises(StoreLockedError, match=f"process {holder.pid} has been writing"):
        store.drop([1])
    holder.kill()
    holder.communicate()
    store.drop([1])
