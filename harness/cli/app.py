"""The command line as a whole: its commands, and the exit code of each kind of error."""

from __future__ import annotations

import os
import sys

import typer

from harness.cli import keep, sessions, show, upkeep
from harness.cli.options import complaints, print_json
from harness.errors import HarnessError, HistoryError, SessionFileError
from mmu.errors import MMUError
from store import (
    BrokenReferenceError,
    IntegrityCheckError,
    InvalidNodeError,
    NodeConflictError,
    NodeNotFoundError,
    OrphanedNodeError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreReadError,
    StoreWriteError,
    __version__,
)

EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (NodeNotFoundError, 3),
    (IntegrityCheckError, 4),
    (OrphanedNodeError, 5),
    (BrokenReferenceError, 6),
    (NodeConflictError, 7),
    (StoreFormatError, 8),
    (StoreReadError, 9),
    (StoreWriteError, 10),
    (StoreLockedError, 11),
    (SessionFileError, 12),
    (HistoryError, 12),
    (MMUError, 2),
    (InvalidNodeError, 2),
    (StoreError, 13),
    (HarnessError, 13),
)
"""1 is a negative answer (faults found, a requirement failed), 2 wrong use; the others name the kind of error."""

app = typer.Typer(
    name="mmu",
    help="A memory management unit for prompts: fold old steps, bring back what a prompt needs, evict it again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (keep, upkeep, sessions, show):
    module.register(app)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        typer.echo(f"prompt-mmu {__version__}")
        raise typer.Exit


def exit_code(error: Exception) -> int:
    """The exit code of an error of ours."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def main() -> None:
    """Run the command line; an error of ours is one line on standard error and an exit code, never a traceback."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except (StoreError, MMUError, HarnessError) as error:
        if "--json" in sys.argv[1:]:
            print_json({"error": {"class": type(error).__name__, "message": str(error)}})
        complaints.print(f"mmu: {error}", markup=False)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        complaints.print("mmu: interrupted; what was acknowledged is kept", markup=False)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left; what is still buffered goes nowhere, and no error is told
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
