"""Commands that only look: status, report, explain, conformance."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from harness.branches import branch_rows, root_of
from harness.cli.options import (
    SESSION,
    STORE,
    JsonOption,
    SessionOption,
    StoreOption,
    console,
    open_store,
    print_json,
    table,
)
from harness.cli.tables import ledger_table, totals_lines, why
from harness.errors import SessionFileError
from harness.ledger import Ledger, LedgerFault
from harness.receipt import Receipt
from harness.report import totals, turns
from harness.view import OpenTurn, View
from store import FileStore

NameArgument = Annotated[str, typer.Argument(help="The session.")]


def status(
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    export: Annotated[bool, typer.Option("--export", help="Write recall_index.json anew.")] = False,
    json: JsonOption = False,
) -> None:
    """What a session holds: steps, tokens, what is folded, the open turn, faults."""
    with open_store(store, session) as opened:
        view, turn = View.load(opened), OpenTurn.load(opened, root_of(opened))
        if export:
            opened.export_index()
        document = {
            "session": opened.session,
            "folder": str(opened.folder),
            "steps": len(opened.entries),
            "tokens": sum(entry.tokens for entry in opened.entries.values()),
            "bytes": sum(entry.size for entry in opened.entries.values()),
            "folded": len(view.folded),
            "turn": turn.number,
            "in_prompt_for_this_turn": [piece.step_id for piece in turn.hydrated],
            "baseline_tokens": turn.baseline,
            "redone": list(opened.recovery.redone),
            "torn_bytes": opened.recovery.torn_bytes,
            "head": f"{opened.version.count}:{opened.version.link}",
            "forgotten": len(opened.forgotten.steps),
            "branches": branch_rows(opened),
            "faults": [str(fault) for fault in opened.faults],
        }
    if json:
        print_json(document)
        return
    rows = table("", "")
    for name, value in document.items():
        if isinstance(value, list) and name == "branches":
            value = list(map(_branch, value))  # noqa: PLW2901 - its readable form
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        rows.add_row(
            name.replace("_", " "), "\n".join(map(str, text)) or "none" if isinstance(text, list) else str(text)
        )
    console.print(rows)


def _branch(row: dict[str, Any]) -> str:
    left = f", left {row['parent']} before step {row['step']}" if row["parent"] else ""
    return f"{row['session']}: {row['steps']} steps{left}{' (current)' if row['current'] else ''}"


def _ledger(opened: FileStore) -> tuple[tuple[Receipt, ...], tuple[LedgerFault, ...]]:
    receipts, faults = Ledger(opened).read()
    if not receipts and not faults:
        raise SessionFileError(f"session {opened.session!r}: no call has been booked yet")
    return receipts, faults


def report(session: NameArgument, store: StoreOption = STORE, json: JsonOption = False) -> None:
    """The ledger of a session: every turn, and the totals."""
    with open_store(store, session) as opened:
        receipts, faults = _ledger(opened)
    if json:
        rows = [asdict(row) for row in turns(receipts)]
        print_json(
            {
                "session": session,
                "turns": rows,
                "totals": totals(receipts).document(),
                "faults": [asdict(f) for f in faults],
            }
        )
        return
    console.print(ledger_table(receipts, every=True))
    console.print(*totals_lines(totals(receipts)), sep="\n")
    for fault in faults:
        console.print(f"ledger line {fault.line}: {fault.reason}", markup=False)


def explain(
    session: NameArgument,
    turn: Annotated[int, typer.Argument(help="The turn's number.")],
    store: StoreOption = STORE,
    json: JsonOption = False,
) -> None:
    """Why a turn's prompt was what it was: picks with their terms, drops, folds, what was evicted."""
    with open_store(store, session) as opened:
        receipts = [receipt for receipt in _ledger(opened)[0] if receipt.turn == turn]
        summaries = {step_id: entry.summary for step_id, entry in opened.entries.items()}
    if not receipts:
        raise SessionFileError(f"session {session!r}: there is no turn {turn}")
    if json:
        print_json({"session": session, "turn": turn, "dispatches": [receipt.document() for receipt in receipts]})
        return
    for receipt in receipts:
        sizes = f"full history {receipt.full:,}, S {receipt.baseline:,}, sent {receipt.sent:,} tokens"
        console.print(f"turn {turn}, call {receipt.dispatch} ({receipt.outcome}): {sizes}")
        console.print(
            f"  S = last S + new {receipt.new:,} - folded {receipt.folded_tokens:,} + hot lines {receipt.hot_change:,}"
            + (f" + changed by the client {receipt.client_change:,}" if receipt.client_change else "")
        )
        for piece in receipt.hydrated:
            console.print(f"  in the prompt: {why(piece)}\n    {summaries.get(piece.step_id, '')}", markup=False)
        for pick in receipt.dropped:
            console.print(f"  no room: step {pick.step_id} ({pick.tokens:,} tokens): {', '.join(pick.terms)}")
        if receipt.folded:
            console.print(f"  folded: {len(receipt.folded)} steps, {receipt.folded[0]} to {receipt.folded[-1]}")
        if receipt.evicted:
            console.print(f"  evicted: step {', '.join(map(str, receipt.evicted))}")
        for fault in receipt.faults:
            console.print(f"  fault: {fault}", markup=False)


def conformance(json: JsonOption = False) -> None:
    """Check the 13 requirements of IPCF-1.1 here and now. Exit code 1 if one fails."""
    from harness.conformance import check  # noqa: PLC0415 - unittest is needed for this command only

    matrix = check()
    failed = [row for row in matrix if row.status == "fail"]
    if json:
        print_json({"requirements": [{"id": r.id, "status": r.status, "detail": r.detail} for r in matrix]})
    else:
        rows = table("id", "requirement", "status", "detail")
        for row in matrix:
            rows.add_row(row.id, row.title, row.status, row.detail)
        console.print(rows)
        console.print(f"{len(matrix) - len(failed)} of {len(matrix)} requirements of IPCF-1.1 hold")
    raise typer.Exit(1 if failed else 0)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (status, report, explain, conformance):
        app.command()(command)
