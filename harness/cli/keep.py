"""Commands on one session's store: fold, scan, recall, hydrate."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from harness.cli.options import (
    SESSION,
    STORE,
    JsonOption,
    PolicyOption,
    RedactOption,
    SessionOption,
    StoreOption,
    complaints,
    console,
    open_mmu,
    print_json,
    progress_bar,
    table,
)
from harness.document import read
from harness.errors import SessionFileError
from mmu.block import label
from mmu.unit import TextStep
from store import decode_text


def _text(path: Path | None) -> str:
    if path is None or str(path) == "-":
        raw = sys.stdin.buffer.read()
    else:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise SessionFileError(f"{path}: {error.strerror or error}") from error
    try:
        return decode_text(raw)
    except UnicodeDecodeError as error:
        raise SessionFileError(
            f"{path or 'standard input'}: not UTF-8 text ({error.reason} at byte {error.start})"
        ) from error


def fold(
    file: Annotated[Path | None, typer.Argument(help="The text to archive; standard input if missing or `-`.")] = None,
    step: Annotated[int | None, typer.Option("--step", help="The step's id: its position in the history.")] = None,
    summary: Annotated[str, typer.Option(help="A line about the step; it is searched too.")] = "",
    timestamp: Annotated[str, typer.Option(help="When the step happened, ISO 8601.")] = "",
    rows: Annotated[
        bool, typer.Option("--rows", help='The file holds many: lines of {"step": 1, "text": "...", "summary": "..."}.')
    ] = False,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    policy: PolicyOption = None,
    redact: RedactOption = True,
    json: JsonOption = False,
) -> None:
    """Archive a text as a step, byte for byte but for secrets, under the id that its history gives it."""
    if rows == (step is not None):
        raise typer.BadParameter("give either --step or --rows")
    text = _text(file)
    steps = _rows(text) if step is None else (TextStep(step, text, summary, timestamp),)
    with open_mmu(store, session, create=True, policy=policy) as mmu, progress_bar("archiving") as progress:
        mmu.fold_many(steps, without_secrets=redact, progress=progress)
        entries = [mmu.store.entries[one.step_id] for one in steps]
        sanitized: Counter[str] = Counter()
        if redact:
            for one in steps:
                sanitized.update(mmu.store.get(one.step_id).sanitized)
    if json:
        one_or_all = entries[0].document() if step is not None else {"steps": len(entries)}
        print_json({**one_or_all, "sanitized": sanitized})
        return
    for kind, count in sanitized.items():
        complaints.print(f"{count} {kind} redacted before archiving; --no-redact keeps the text as it is")
    if step is None:
        size = sum(entry.size for entry in entries)
        console.print(f"{len(entries):,} steps: {size:,} bytes, {sum(entry.tokens for entry in entries):,} tokens")
    else:
        entry = entries[0]
        console.print(f"step {step}: {entry.size:,} bytes, {entry.tokens:,} tokens, payload {entry.payload_sha256}")


def _rows(text: str) -> tuple[TextStep, ...]:
    """The texts of a file with one on each line. Raises SessionFileError that names the line."""
    steps: list[TextStep] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            row["step_id"] = row.pop("step")
            steps.append(read(TextStep, row, "row"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SessionFileError(f"line {number}: no row with `step` and `text` ({error})") from error
    return tuple(steps)


def scan(
    prompt: Annotated[str, typer.Argument(help="The prompt that is about to be sent.")],
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    policy: PolicyOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a prompt would bring back, and the block as the model would see it."""
    with open_mmu(store, session, policy=policy) as mmu:
        found = mmu.scan(prompt)
    if json:
        pieces = [
            {
                "step_id": piece.step_id,
                "tokens": piece.tokens,
                "whole_tokens": piece.whole_tokens,
                "truncated": piece.truncated,
                "terms": piece.terms,
                "label": label(piece.chronology),
                "artifact_sha256": piece.artifact_sha256,
            }
            for piece in found.pieces
        ]
        dropped = [{"step_id": d.step_id, "tokens": d.cost, "terms": sorted(d.terms)} for d in found.dropped]
        faults = [str(fault) for fault in found.faults]
        print_json(
            {"hydrated": pieces, "dropped": dropped, "faults": faults, "tokens": found.tokens, "block": found.block}
        )
        return
    if not found.pieces:
        reason = "what matches does not verify or fit" if found.faults or found.dropped else "nothing archived matches"
        console.print(f"{reason}; nothing would be added")
    for pick in found.dropped:
        console.print(f"no room for step {pick.step_id} ({pick.cost:,} tokens)")
    for fault in found.faults:
        console.print(f"not hydrated: {fault}", markup=False)
    console.print(found.block, markup=False)


def recall(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    limit: Annotated[int, typer.Option(min=1, help="The most candidates to list.")] = 20,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    json: JsonOption = False,
) -> None:
    """List the steps a query may mean, the latest state first. Changes no prompt."""
    with open_mmu(store, session) as mmu:
        found = mmu.recall(query, limit)
    if json:
        print_json({"query": query, "candidates": [asdict(candidate) for candidate in found]})
        return
    if not found:
        console.print("no archived step carries a word of this query")
        return
    rows = table("#step", "status", "value", "#terms", "time", "summary")
    for c in found:
        rows.add_row(str(c.step_id), c.status, c.value or "-", str(c.coverage), c.timestamp, c.fault or c.summary)
    console.print(rows)


def hydrate(
    step: Annotated[int, typer.Argument(help="The step's id.")],
    cap: Annotated[
        int | None, typer.Option(min=1, help="Tokens at most; the policy's bound holds all the same.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="The payload byte for byte instead of its rendering.")] = False,
    store: StoreOption = STORE,
    session: SessionOption = SESSION,
    policy: PolicyOption = None,
    json: JsonOption = False,
) -> None:
    """Print a step's content, every hash checked on the way."""
    with open_mmu(store, session, policy=policy) as mmu:
        found = mmu.hydrate(step, cap)
    node = found.node
    if json:
        hashes = {name: getattr(node, name) for name in ("payload_sha256", "projection_sha256", "artifact_sha256")}
        print_json(
            {
                "step_id": step,
                "text": found.text,
                "tokens": found.tokens,
                "whole_tokens": found.whole_tokens,
                "truncated": found.truncated,
                "timestamp": node.timestamp,
                "folded_at": node.folded_at,
                **hashes,
            }
        )
    elif raw:
        sys.stdout.buffer.write(node.payload)
    else:
        typer.echo(found.text)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (fold, scan, recall, hydrate):
        app.command()(command)
