"""Receipts as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.table import Table

from harness.cli.options import table
from harness.receipt import Hydrated, Receipt
from harness.report import Totals, TurnRow, turns


def ledger_table(receipts: Sequence[Receipt], *, probes: Mapping[int, str] | None = None, every: bool = False) -> Table:
    """The ledger turn by turn. Turns in which nothing left or came back share a row, unless `every` one is wanted.

    `probes` gives words to show beside a turn (by its number).
    """
    made = table("#turn", "#calls", "#full", "#S", "#sent", "#share", "#folded", "what came back, and why")
    rows = turns(receipts)
    for quiet, group in groupby(rows, key=lambda row: row.quiet and not every and row.turn not in (probes or {})):
        listed = list(group)
        if quiet and len(listed) > 1:
            made.add_row(*_quiet(listed))
        else:
            for row in listed:
                made.add_row(*_cells(row, (probes or {}).get(row.turn, "")))
    return made


def _quiet(rows: Sequence[TurnRow]) -> tuple[str, ...]:
    first, last = rows[0], rows[-1]
    sent, full = sum(row.sent_sum for row in rows), sum(row.full_sum for row in rows)
    return (
        f"{first.turn}-{last.turn}",
        str(sum(row.calls for row in rows)),
        f"to {last.full:,}",
        f"to {last.baseline:,}",
        f"to {max(row.sent for row in rows):,}",
        _percent(sent, full),
        "",
        "nothing left, nothing came back",
    )


def _cells(row: TurnRow, probe: str) -> tuple[str, ...]:
    lines = [f"« {probe} »"] if probe else []
    lines += [why(piece) for piece in row.hydrated]
    if row.hydrated:
        lines.append(f"evicted, back to S = {row.baseline:,}" if row.evicted else "not yet evicted")
    lines += row.faults
    if not row.returned:
        lines.append("the client changed what it had sent before")
    return (
        str(row.turn),
        str(row.calls),
        f"{row.full:,}",
        f"{row.baseline:,}",
        f"{row.sent:,}",
        _percent(row.sent_sum, row.full_sum),
        str(len(row.folded) or ""),
        "\n".join(lines),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def why(piece: Hydrated) -> str:
    """One line about a step that came back."""
    cut = f" of {piece.whole_tokens:,}" if piece.tokens < piece.whole_tokens else ""
    words = ", ".join(piece.terms) or "named in the prompt"
    return f"step {piece.step_id} ({piece.tokens:,}{cut} tokens, {piece.label}): {words}"


def totals_lines(totals: Totals) -> tuple[str, ...]:
    """A session's totals in words."""
    return (
        f"{totals.turns} turns, {totals.calls} calls: {totals.sent_sum:,} tokens sent where full history is "
        f"{totals.full_sum:,} ({100 * totals.share:.1f} %)",
        f"largest request {totals.sent_peak:,} tokens, full history {totals.full_peak:,}",
        f"{totals.archived} steps archived, {totals.folded} folded, {totals.hydrated} brought back for one turn each "
        f"({totals.injected_sum:,} tokens in all calls), {totals.faults} faults",
        "S came back to S + new - folded + hot lines after every call"
        if totals.returned
        else "S did not come back at some call: the client changed what it had sent before",
        f"both hooks together: {totals.hooks_ms_median:.1f} ms in the median",
    )
