"""What a session cost, read from its receipts: turn by turn and in all. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median
from typing import Any

from harness.receipt import Hydrated, Receipt


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn, its dispatches taken together. Sizes in tokens.

    `full` is the caller's history at its last dispatch, `sent` its largest request, `baseline` S at its last dispatch.
    `full_sum` and `sent_sum` add up all its dispatches: that is what is paid for. `returned` says whether S is where
    S + new - folded + hot lines puts it, at every dispatch.
    """

    turn: int
    calls: int
    full: int
    baseline: int
    sent: int
    full_sum: int
    sent_sum: int
    archived: int
    folded: tuple[int, ...]
    hydrated: tuple[Hydrated, ...]
    evicted: tuple[int, ...]
    faults: tuple[str, ...]
    returned: bool

    @property
    def quiet(self) -> bool:
        """Whether nothing left, came back or went wrong."""
        return not (self.folded or self.hydrated or self.faults or not self.returned)


@dataclass(frozen=True, slots=True)
class Totals:
    """A session in a few numbers. `full_sum` is the counterfactual: the whole history sent at each call."""

    turns: int
    calls: int
    full_sum: int
    sent_sum: int
    full_peak: int
    sent_peak: int
    archived: int
    folded: int
    hydrated: int
    injected_sum: int
    faults: int
    returned: bool
    hooks_ms_median: float

    @property
    def share(self) -> float:
        """Tokens sent, of what full history would have sent (0 to 1)."""
        return self.sent_sum / self.full_sum if self.full_sum else 1.0

    def document(self) -> dict[str, Any]:
        """The totals as a JSON object."""
        return {**asdict(self), "share": round(self.share, 4)}


def turns(receipts: Iterable[Receipt]) -> tuple[TurnRow, ...]:
    """The rows of a session, in order."""
    return tuple(_row(turn, list(group)) for turn, group in groupby(receipts, key=lambda receipt: receipt.turn))


def _row(turn: int, dispatches: Sequence[Receipt]) -> TurnRow:
    last = dispatches[-1]
    hydrated = {piece.step_id: piece for receipt in dispatches for piece in receipt.hydrated}
    return TurnRow(
        turn=turn,
        calls=len(dispatches),
        full=last.full,
        baseline=last.baseline,
        sent=max(receipt.sent for receipt in dispatches),
        full_sum=sum(receipt.full for receipt in dispatches),
        sent_sum=sum(receipt.sent for receipt in dispatches),
        archived=sum(len(receipt.archived) for receipt in dispatches),
        folded=tuple(step for receipt in dispatches for step in receipt.folded),
        hydrated=tuple(hydrated.values()),
        evicted=tuple(step for receipt in dispatches for step in receipt.evicted),
        faults=tuple(fault for receipt in dispatches for fault in receipt.faults),
        returned=all(receipt.client_change == 0 for receipt in dispatches),
    )


def totals(receipts: Sequence[Receipt]) -> Totals:
    """A session's sums, peaks and medians."""
    rows = turns(receipts)
    hooks = [receipt.pre_ms + receipt.post_ms for receipt in receipts]
    return Totals(
        turns=len(rows),
        calls=len(receipts),
        full_sum=sum(row.full_sum for row in rows),
        sent_sum=sum(row.sent_sum for row in rows),
        full_peak=max((receipt.full for receipt in receipts), default=0),
        sent_peak=max((receipt.sent for receipt in receipts), default=0),
        archived=sum(row.archived for row in rows),
        folded=sum(len(row.folded) for row in rows),
        hydrated=sum(len(row.hydrated) for row in rows),
        injected_sum=sum(receipt.injected for receipt in receipts),
        faults=sum(len(row.faults) for row in rows),
        returned=all(row.returned for row in rows),
        hooks_ms_median=round(median(hooks), 3) if hooks else 0.0,
    )
