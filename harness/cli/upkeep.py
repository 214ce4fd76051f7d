"""Commands that look after a store: validate, repair, forget, reindex."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from harness import forgetting
from harness.branches import read_forks, root_of
from harness.cli.options import (
    SESSION,
    STORE,
    JsonOption,
    PolicyOption,
    SessionOption,
    StoreOption,
    complaints,
    console,
    open_mmu,
    open_store,
    print_json,
    progress_bar,
)
from harness.clock import system_clock
from harness.errors import SessionFileError
from harness.ledger import LEDGER_FILE, Ledger
from harness.reindexing import reindex as carry_over
from harness.view import OpenTurn, View
from store import ColdStore, StoreError, findings, plan
from store import repair as carry_out


def validate(
    since: Annotated[
        int, typer.Option("--since", min=0, help="Read only nodes behind this many entries of the chain (see `head`).")
    ] = 0,
    anchor: Annotated[Path | None, typer.Option("--anchor", help="The file outside that was told the heads.")] = None,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    json: JsonOption = False,
) -> None:
    """Audit the whole session: chain, hashes, references, files, ledger. Exit code 1 if something is wrong."""
    with open_mmu(store, session) as mmu, progress_bar("validating") as progress:
        opened = mmu.store
        result = opened.validate(progress, since=since, anchor=anchor)
        index = mmu.check_index()
        faults = [
            {"class": type(fault).__name__, "step_id": fault.step_id, "message": str(fault)} for fault in result.faults
        ]
        faults += _document_faults(opened)
        # The index is derived: damage to it is no fault of the store, and is made good on the spot.
        notes = [*result.notes, *(() if index else ("the index was damaged, and was derived anew",))]
    if json:
        print_json(
            {
                "checked": result.checked,
                "head": result.head,
                "forgotten": list(result.forgotten),
                "notes": notes,
                "faults": faults,
            }
        )
    else:
        for row in faults:
            console.print(f"{row['class']}: {row['message']}", markup=False)
        forgotten = f", {len(result.forgotten)} forgotten" if result.forgotten else ""
        console.print(f"{result.checked} steps checked{forgotten}, {len(faults)} faults; head {result.head}")
        for note in notes:
            console.print(f"note: {note}")
    raise typer.Exit(1 if faults else 0)


def _document_faults(opened: ColdStore) -> Iterator[dict[str, Any]]:
    """What is wrong with the session's documents."""
    for fault in Ledger(opened).read()[1]:
        yield {"class": "LedgerFault", "step_id": None, "message": f"{LEDGER_FILE} line {fault.line} {fault.reason}"}
    reads: tuple[Callable[[], object], ...] = (
        lambda: View.load(opened),
        lambda: OpenTurn.load(opened, root_of(opened)),
        lambda: read_forks(opened),
    )
    for read in reads:
        try:
            read()
        except StoreError as error:
            yield {"class": type(error).__name__, "step_id": None, "message": str(error)}


def repair(
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this only the plan is shown.")] = False,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    json: JsonOption = False,
) -> None:
    """Show what could be repaired, and do it with --apply. Nothing is deleted: what is unusable goes to quarantine."""
    with open_store(store, session) as opened:
        actions = plan(opened)
        if apply:
            carry_out(opened, actions)
    if json:
        print_json({"applied": apply, "actions": [asdict(action) for action in actions]})
        return
    for action in actions:
        console.print(str(action), markup=False)
    console.print(
        "nothing to repair" if not actions else "done" if apply else "this is the plan; --apply carries it out"
    )


def forget(
    steps: Annotated[list[int] | None, typer.Argument(help="Ids of steps.")] = None,
    matching: Annotated[str, typer.Option(help="Every step that holds this text, in whatever case.")] = "",
    older_than: Annotated[float | None, typer.Option(help="Every step archived more than so many days ago.")] = None,
    keep_bytes: Annotated[
        int | None, typer.Option(min=0, help="The oldest that do not fit into so many bytes.")
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All steps of the session.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this the steps are only listed.")] = False,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    json: JsonOption = False,
) -> None:
    """Erase steps from every file of the session, on all branches, for good. Exit code 1 if no step is meant."""
    now = system_clock().now()
    if not (steps or matching or older_than is not None or keep_bytes is not None or everything):
        raise typer.BadParameter("say what: step ids, --matching, --older-than, --keep-bytes or --everything")
    with open_store(store, session) as opened, progress_bar("looking") as progress:
        found = {*forgetting.named(opened, steps or ())}
        if matching:
            found |= {*forgetting.matching(opened, matching, progress)}
        if older_than is not None or keep_bytes is not None:
            found |= {*forgetting.outdated(opened, now=now, days=older_than, keep_bytes=keep_bytes)}
        if everything:
            found |= {*forgetting.everything(opened)}
        targets = sorted(found, key=lambda target: (target.session, target.step_id))
        if apply:
            forgetting.forget(opened, targets, at=now)
    if json:
        unreached = list(forgetting.OUT_OF_REACH)
        print_json({"applied": apply, "steps": [asdict(target) for target in targets], "out_of_reach": unreached})
        raise typer.Exit(0 if targets else 1)
    for target in targets:
        console.print(f"{target.session}: step {target.step_id}, {target.size:,} bytes: {target.summary}", markup=False)
    if not targets:
        complaints.print("mmu: no such step has an entry; what lies there without one is listed by `mmu validate`")
    elif not apply:
        console.print(f"{len(targets)} steps would be forgotten for good; --apply does it")
    else:
        console.print(f"{len(targets)} steps forgotten. Out of reach:")
        for line in forgetting.OUT_OF_REACH:
            console.print(f"- {line}")
    raise typer.Exit(0 if targets else 1)


def redact(
    files: Annotated[list[Path], typer.Argument(help="Text files, or recorded sessions (JSON, JSON lines).")],
    json: JsonOption = False,
) -> None:
    """Show which secrets archiving would take out of files. Changes nothing. Exit code 1 if there are any."""
    rows: list[dict[str, Any]] = []
    with progress_bar("reading") as progress:
        for number, file in enumerate(files, 1):
            for at, text in enumerate(_lines(file), 1):
                rows += [
                    {"file": str(file), "line": at, "kind": kind, "begins": begin} for kind, begin in findings(text)
                ]
            progress(number, len(files))
    if json:
        print_json({"files": len(files), "findings": rows})
    else:
        for row in rows:
            console.print(f"{row['file']}:{row['line']}: {row['kind']}, {row['begins']}", markup=False)
        console.print(f"{len(rows)} secrets in {len(files)} files")
    raise typer.Exit(1 if rows else 0)


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file; of a line that is JSON, the texts in it, as archiving sees them."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SessionFileError(f"{file}: {error.strerror or error}") from error
    try:
        yield "\n".join(_texts(orjson.loads(raw)))
    except orjson.JSONDecodeError:
        for line in raw.decode("utf-8", "replace").splitlines():
            try:
                yield "\n".join(_texts(orjson.loads(line)))
            except orjson.JSONDecodeError:
                yield line


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def reindex(
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    policy: PolicyOption = None,
    json: JsonOption = False,
) -> None:
    """Read every archived step anew with this version's rules for terms; payloads stay, byte for byte."""
    with open_mmu(store, session, policy=policy) as mmu, progress_bar("reading") as progress:
        changed = carry_over(mmu, progress)
    if json:
        print_json({"steps": len(mmu.store.entries), "changed": list(changed)})
    else:
        console.print(f"{len(changed)} of {len(mmu.store.entries)} steps have another projection now")


def rebuild(
    store: StoreOption = STORE, session: SessionOption = SESSION, policy: PolicyOption = None, json: JsonOption = False
) -> None:
    """Throw the index away and derive it anew from the log. An index that does not fit is derived anew by itself."""
    with open_mmu(store, session, policy=policy) as mmu, progress_bar("indexing") as progress:
        steps = mmu.rebuild_index(progress)
    if json:
        print_json({"steps": steps})
    else:
        console.print(f"{steps} steps indexed")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (validate, repair, forget, redact, reindex):
        app.command()(command)
    index = typer.Typer(help="What finds the steps; derived from the log, and disposable.", no_args_is_help=True)
    index.command()(rebuild)
    app.add_typer(index, name="index")
