"""Planning a dispatch: from a reading and what the prompt held to what it holds next. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.dispatch import Request, assemble
from harness.folds import Left, fold, lines_of, marks
from harness.history import Dialect, HistoryStep
from harness.reading import Reading
from harness.receipt import Dropped, Hydrated, Receipt, Redacted
from harness.view import OpenTurn, PlacedBlock, View
from mmu.block import Piece, label
from mmu.folding import hot_text
from mmu.step import Call, Text
from mmu.unit import MMU


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dispatch sends, and the view and the turn as they are once it is on its way."""

    request: Request
    view: View
    turn: OpenTurn
    receipt: Receipt


class Planner:
    """Plans the dispatches of one branch. Holds no state. `seal` is the session whose envelopes the reader knows."""

    def __init__(self, mmu: MMU, seal: str) -> None:
        self._mmu, self._seal = mmu, seal

    def plan(
        self,
        reading: Reading,
        view: View,
        last: OpenTurn,
        dialect: Dialect,
        *,
        now: float,
        may_fold: bool = True,
        emergency: bool = False,
    ) -> Plan:
        """The next dispatch. Raises PairingError; store faults are booked in the receipt."""
        policy = self._mmu.policy
        view, unfit = self._fitting(view, reading)
        begins = reading.opening is None or last.opening != reading.opening
        cold = last.at > 0 and now - last.at > policy.cache_ttl_seconds
        left = Left(view)
        if may_fold:
            when = marks(policy, cold=cold, emergency=emergency)
            store, meter = self._mmu.store, self._mmu.meter
            left = fold(reading, view, store, policy, meter, hot=last.hot, begins=begins, at=when)
        turn = last.begin(reading.opening, policy.max_rehydration_tokens_per_turn) if begins else last
        turn, dropped, faults = self._scan(reading, left.view, turn, begins=begins)
        request = self._request(reading, left.view, turn, dialect)
        known = self._mmu.store.entries
        turn = replace(
            turn,
            dispatches=turn.dispatches + 1,
            baseline=request.baseline,
            hot=request.hot,
            beside=reading.outside,
            open_tokens=reading.tokens([step_id for step_id in reading.ids if step_id not in known]),
            missing=frozenset(reading.alignment.missing),
            order=reading.ids if any(a > b for a, b in pairwise(reading.ids)) else (),
            at=now,
        )
        new = self._arrived(reading, last, left.view)
        hot_change = request.hot - last.hot
        receipt = Receipt(
            turn.number,
            turn.dispatches,
            "active",
            full=reading.history.tokens + reading.beside.tokens,
            baseline=request.baseline,
            sent=request.sent,
            new=new,
            folded_tokens=left.freed,
            hot=request.hot,
            hot_change=hot_change,
            client_change=request.baseline - (last.baseline + new - left.freed + hot_change),
            archived=reading.archived,
            redacted=_redacted(reading),
            folded=left.whole,
            cut=left.cut,
            hydrated=turn.hydrated,
            dropped=dropped,
            evicted=tuple(h.step_id for h in last.hydrated) if begins else (),
            stripped=sum(message.stripped for message in reading.history.messages),
            faults=(*reading.faults, *unfit, *left.faults, *faults, *request.notes),
        )
        return Plan(request, left.view, turn, receipt)

    def _fitting(self, view: View, reading: Reading) -> tuple[View, tuple[str, ...]]:
        """The view as far as it fits a history: what the open turn shows stays in the prompt, and so does a step that the
        view calls folded and the store has just met, or does not hold: the view is older or newer than the store."""
        fresh = {reading.ids[at] for at in reading.alignment.new}
        lost = (view.folded | view.cut) & {s for s in reading.ids if s in fresh or s not in self._mmu.store.entries}
        back = lost | ((view.folded | view.cut) & set(reading.running[:1])) | (view.folded & set(reading.running))
        view = view.showing(reading.ids)
        if back:
            view = view.without(back)
        return view, tuple(f"step {step_id} is not archived; it stays in the prompt" for step_id in sorted(lost))

    def _scan(
        self, reading: Reading, view: View, turn: OpenTurn, *, begins: bool
    ) -> tuple[OpenTurn, tuple[Dropped, ...], tuple[str, ...]]:
        """Bring back what the prompt needs, or, inside a turn, what the newest exchanges mention."""
        steps, anchor = reading.steps, reading.opening
        if anchor is None:
            return turn, (), ()
        if begins:
            found = reading.history.opening
            assert found is not None  # there is an anchor
            asking, words = [anchor], reading.history.messages[found[1]].prompt
        else:
            asking = [s for s in reading.running[1:] if s > turn.scanned and steps[s].complete]
            words = "\n".join(_mentioned(steps[s]) for s in asking)
            anchor = reading.ids[-1]
        if not asking or anchor not in asking or turn.left <= 0:
            return replace(turn, scanned=max(asking, default=turn.scanned)), (), ()
        before = reading.history.boundary  # what stands before it, the service does not show
        visible = {s for s in reading.ids if steps[s].positions[-1] >= before}
        in_view = (visible - view.folded - view.cut) | {h.step_id for h in turn.hydrated} | view.withdrawn | set(asking)
        # A question holds no state; what an agent did meanwhile does.
        asks = asking if begins else ()
        scan = self._mmu.scan(words, in_view=in_view, asking=asks, budget=turn.left, seal=self._seal)
        hydrated = tuple(map(_hydrated, scan.pieces))
        blocks = (PlacedBlock(anchor, scan.block, tail=not begins),) if scan.block else ()
        turn = replace(
            turn,
            blocks=(*turn.blocks, *blocks),
            hydrated=(*turn.hydrated, *hydrated),
            left=scan.left,
            scanned=max(asking),
        )
        dropped = tuple(Dropped(pick.step_id, pick.cost, tuple(sorted(pick.terms))) for pick in scan.dropped)
        return turn, dropped, tuple(f"not hydrated: {fault}" for fault in scan.faults)

    def _request(self, reading: Reading, view: View, turn: OpenTurn, dialect: Dialect) -> Request:
        found = reading.history.opening
        line = lines_of(self._mmu.store, self._mmu.policy.hot_line_characters)
        return assemble(
            reading.forms.outgoing(view.folded, view.cut),
            dialect,
            hot_text=hot_text(view.folded, view.lined, self._seal, line),
            blocks=turn.blocks,
            opening=found[1] if found else None,
            beside=reading.beside,
        )

    def _arrived(self, reading: Reading, last: OpenTurn, view: View) -> int:
        """Tokens that the history shows now and did not show at the last dispatch."""
        back = {step_id for step_id in reading.ids if step_id in last.missing and step_id not in view.folded}
        fresh: Collection[int] = {reading.ids[at] for at in reading.alignment.new}
        return reading.tokens({*fresh, *back}) - last.open_tokens + reading.outside - last.beside


def _redacted(reading: Reading) -> tuple[Redacted, ...]:
    """What was taken out of the steps that were archived now."""
    found: Counter[str] = Counter()
    for step_id in reading.archived:
        found.update(reading.steps[step_id].sanitized)
    return tuple(Redacted(kind, count) for kind, count in sorted(found.items()))


def _mentioned(step: HistoryStep) -> str:
    """What an assistant said and asked of its tools: its words, and the values of its calls' arguments. Tool names and
    argument names are in every call and mean nothing; results are not scanned, they would recall themselves."""
    words = [part.text for part in step.parts if isinstance(part, Text) and part.role == "assistant"]
    return "\n".join([*words, *(value for part in step.parts if isinstance(part, Call) for value in part.values())])


def _hydrated(piece: Piece) -> Hydrated:
    return Hydrated(
        step_id=piece.step_id,
        tokens=piece.tokens,
        whole_tokens=piece.whole_tokens,
        artifact_sha256=piece.artifact_sha256,
        terms=piece.terms,
        label=label(piece.chronology),
        newer_in_view=piece.chronology.newer_in_view,
    )
