"""What the commands share: their options, how they open a session, and how they print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness.clock import system_clock
from harness.errors import SessionFileError
from mmu.policy import HydrationPolicy
from mmu.tokens import open_meter
from mmu.unit import MMU
from store import FileStore

StoreOption = Annotated[Path, typer.Option("--store", envvar="MMU_STORE", help="The store folder.")]
SessionOption = Annotated[str, typer.Option("--session", envvar="MMU_SESSION", help="The session in it.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", help='A JSON file with fields of the policy, e.g. {"low_water_tokens": 8000}.'),
]
RedactOption = Annotated[
    bool, typer.Option("--redact/--no-redact", help="Take keys, tokens and passwords out of what is archived.")
]
STORE, SESSION = Path(".mmu"), "default"

# What is printed is other people's text: `[/INST]` in it is no markup, and `:x:` no picture.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
if not console.is_terminal:  # a file or pipe has no width of its own
    console.width = 120
complaints = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    try:
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    except TypeError:  # a name or query that is no UTF-8 came in with a lone surrogate, which this shows as its escape
        text = dumps(document, indent=2) + "\n"
    sys.stdout.write(text)


def read_policy(path: Path | None) -> HydrationPolicy:
    """The policy in a JSON file, or the default one. Raises SessionFileError or PolicyError."""
    if path is None:
        return HydrationPolicy()
    try:
        values = orjson.loads(path.read_bytes())
    except OSError as error:
        raise SessionFileError(f"{path}: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise SessionFileError(f"{path}: no JSON ({error})") from error
    if not isinstance(values, dict):
        raise SessionFileError(f"{path}: an object with the policy's fields was expected")
    return HydrationPolicy.of(values)


@contextmanager
def open_store(store: Path, session: str, *, create: bool = False) -> Iterator[FileStore]:
    """A session of the store folder; commands that only read do not make one. `MMU_KEY` seals the chain's head, `MMU_ANCHOR`
    names the file that is told it."""
    key = os.environb.get(b"MMU_KEY") or None
    anchor = os.environ.get("MMU_ANCHOR") or None
    with FileStore(store, session, create=create, key=key, anchor=Path(anchor) if anchor else None) as opened:
        yield opened


@contextmanager
def open_mmu(store: Path, session: str, *, create: bool = False, policy: Path | None = None) -> Iterator[MMU]:
    """The memory management unit of a session."""
    with open_store(store, session, create=create) as opened:
        with progress_bar("indexing") as progress:
            mmu = MMU(opened, read_policy(policy), open_meter(), system_clock().now, progress)
        yield mmu


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error for anything that may take longer than a second; nothing where nobody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=complaints, transient=True, disable=not complaints.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table; columns that begin with `#` are numbers."""
    made = Table(title=title, box=None, pad_edge=False, title_justify="left", title_style="bold")
    for column in columns:
        made.add_column(
            column.removeprefix("#"), justify="right" if column.startswith("#") else "left", overflow="fold"
        )
    return made
