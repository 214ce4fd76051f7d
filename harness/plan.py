"""Planning a dispatch: from a history and what the prompt held to what it holds next. Writes nothing but archived steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from harness.align import Alignment, Known, Shown, align
from harness.dispatch import Request, assemble
from harness.history import History, HistoryStep, Reader, compact, prompt_of
from harness.receipt import Dropped, Hydrated, Receipt
from harness.view import OpenTurn, View
from mmu.block import Piece, label
from mmu.folding import Foldable, choose, hot_line, line_length
from mmu.rendering import headline
from mmu.step import Step
from mmu.unit import MMU
from store import StoreError

PRIMING = 3  # tokens that every chat request carries beside its messages


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dispatch sends, and the view and the turn as they are once it is on its way."""

    request: Request
    view: View
    turn: OpenTurn
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Reading:
    """A history with the ids of its steps, and which of them it archived; `beside` is what is sent outside of steps, in
    tokens, `extra` what of it is no message. `faults` says why something was not archived."""

    history: History
    alignment: Alignment
    archived: tuple[int, ...]
    beside: int
    extra: int
    faults: tuple[str, ...] = ()

    @property
    def opening(self) -> tuple[int, HistoryStep] | None:
        """Id and step of the user message that opened the turn."""
        at = self.history.opening
        return None if at is None else (self.alignment.ids[at], self.history.steps[at])

    def tokens(self, ids: Collection[int]) -> int:
        """What the steps of these ids cost."""
        return sum(step.tokens for step_id, step in self.pairs() if step_id in ids)

    def pairs(self) -> zip[tuple[int, HistoryStep]]:
        """Every step with its id."""
        return zip(self.alignment.ids, self.history.steps, strict=True)


class Planner:
    """Plans the dispatches of one session. Its only state is derived: the known steps as the store's index lists them."""

    def __init__(self, mmu: MMU, reader: Reader) -> None:
        self._mmu, self._reader = mmu, reader
        self._store, self._policy, self._meter = mmu.store, mmu.policy, mmu.meter
        self._known: list[Known] = []
        self._taken = 0

    def plan(
        self,
        reading: Reading,
        view: View,
        last: OpenTurn,
        *,
        pins: Collection[int],
        may_fold: bool = True,
    ) -> Plan:
        """The next dispatch of a history. Raises PairingError; store faults are booked in the receipt."""
        faults = [*reading.faults]
        opening = reading.opening
        begins = opening is None or last.opening != opening[0]
        folded: tuple[int, ...] = ()
        turn, dropped = last, tuple[Dropped, ...]()
        if begins:
            if may_fold:
                view, folded = self._fold(reading, view, last, pins, faults)
            turn = last.begin(opening[0] if opening else None, self._policy.max_rehydration_tokens_per_turn)
            if opening:
                turn, dropped = self._scan(prompt_of(opening[1]), reading, view, turn, faults)
        request = self._request(reading, view, turn.block)
        turn = replace(
            turn,
            dispatches=turn.dispatches + 1,
            baseline=request.baseline,
            hot=request.hot,
            beside=reading.beside,
            open_tokens=sum(step.tokens for step_id, step in reading.pairs() if step_id not in self._store.entries),
            missing=frozenset(reading.alignment.missing),
        )
        new = self._arrived(reading, last, view)
        folded_tokens = reading.tokens(folded)
        hot_change = request.hot - last.hot
        receipt = Receipt(
            turn.number,
            turn.dispatches,
            "active",
            full=reading.history.tokens + reading.extra,
            baseline=request.baseline,
            sent=request.sent,
            new=new,
            folded_tokens=folded_tokens,
            hot=request.hot,
            hot_change=hot_change,
            client_change=request.baseline - (last.baseline + new - folded_tokens + hot_change),
            archived=reading.archived,
            folded=folded,
            hydrated=turn.hydrated,
            dropped=dropped,
            evicted=tuple(h.step_id for h in last.hydrated) if begins else (),
            stripped=sum(message.stripped for message in reading.history.messages),
            faults=tuple(faults),
        )
        return Plan(request, view, turn, receipt)

    def read(self, history: Sequence[Any], tools: Any = None) -> Reading:
        """Read, align, and archive what is new and complete. If archiving fails the steps stay in the prompt.

        Raises HistoryError.
        """
        read = self._reader.read(history)
        self._mmu.refresh()
        known, least = self._branch()
        alignment = align(known, [Shown(step.match_key, len(step.messages)) for step in read.steps], least)
        new = [(alignment.ids[at], read.steps[at]) for at in alignment.new if read.steps[at].complete]
        faults: tuple[str, ...] = ()
        try:
            self._mmu.archive([_archivable(step_id, step) for step_id, step in new])
        except StoreError as error:
            faults, new = (f"not archived: {error}",), []
        extra = PRIMING + (self._meter.count(compact(tools).decode()) if tools else 0)
        beside = extra + sum(message.tokens for message in read.messages if message.kind == "system")
        return Reading(read, alignment, tuple(step_id for step_id, _ in new), beside, extra, faults)

    def _branch(self) -> tuple[list[Known], int]:
        """The known steps in order, and the least id that a new one may take."""
        entries = self._store.entries
        if len(entries) < self._taken:  # a repair took some out
            self._known, self._taken = [], 0
        if fresh := [*islice(entries.values(), self._taken, None)]:
            self._taken = len(entries)
            self._known += [Known(entry.step_id, entry.match_key, entry.messages) for entry in fresh if entry.match_key]
            self._known.sort(key=lambda known: known.step_id)
        # Texts folded by hand have ids of their own; a history's steps then come after them.
        return self._known, max(entries, default=-1) + 1 if len(self._known) < len(entries) else 0

    def _fold(
        self, reading: Reading, view: View, last: OpenTurn, pins: Collection[int], faults: list[str]
    ) -> tuple[View, tuple[int, ...]]:
        """Above the high mark, take the oldest steps out of the view until it is at the low one."""
        users = [step_id for step_id, step in reading.pairs() if step.kind == "user"]
        # What follows the newest prompt is the running turn: a call taken up again must not lose its own work.
        running = reading.alignment.ids[reading.history.opening :] if users else ()
        stay = {*pins, *users[:1], *running}
        sized = [
            Foldable(step_id, step.tokens, step_id in self._store.entries and step_id not in stay)
            for step_id, step in reading.pairs()
            if step_id not in view.folded
        ]
        total = last.hot + reading.beside + sum(step.tokens for step in sized)
        chosen = choose(sized, total, high=self._policy.high_water_tokens, low=self._policy.low_water_tokens)
        steps = dict(reading.pairs())
        lines: dict[int, str] = {}
        for step_id in chosen:
            try:
                self._store.get(step_id)  # read back and verified, and only then out of the prompt
            except StoreError as error:
                faults.append(f"not folded: {error}")
                continue
            step = steps[step_id]
            length = line_length(len(step.payload), self._policy.hot_line_characters) - len(hot_line(step_id, ""))
            lines[step_id] = hot_line(step_id, headline(step.parts, step.tokens, length))
        if not lines:
            return view, ()
        hot = view.hot.fold(list(lines.items()), self._policy.hot_line_tokens, self._meter.count)
        return View(view.folded | set(lines), hot), tuple(lines)

    def _scan(
        self, prompt: str, reading: Reading, view: View, turn: OpenTurn, faults: list[str]
    ) -> tuple[OpenTurn, tuple[Dropped, ...]]:
        """Bring back what the prompt needs of steps that are not in view."""
        in_view = {step_id for step_id in reading.alignment.ids if step_id not in view.folded}
        scan = self._mmu.scan(prompt, in_view=in_view, asking=turn.opening, budget=turn.left)
        faults.extend(f"not hydrated: {fault}" for fault in scan.faults)
        dropped = tuple(Dropped(pick.step_id, pick.cost, tuple(sorted(pick.terms))) for pick in scan.dropped)
        return replace(turn, block=scan.block, hydrated=tuple(map(_hydrated, scan.pieces)), left=scan.left), dropped

    def _request(self, reading: Reading, view: View, block: str) -> Request:
        folded = {at for at, step_id in enumerate(reading.alignment.ids) if step_id in view.folded}
        hot = view.hot.text(self._store.session)
        return assemble(
            reading.history, self._reader.dialect, folded=folded, hot_text=hot, block=block, extra=reading.extra
        )

    def _arrived(self, reading: Reading, last: OpenTurn, view: View) -> int:
        """Tokens that the history shows now and did not show at the last dispatch."""
        ids = reading.alignment.ids
        back = {step_id for step_id in ids if step_id in last.missing and step_id not in view.folded}
        fresh = {ids[at] for at in reading.alignment.new}
        return reading.tokens(fresh | back) - last.open_tokens + reading.beside - last.beside


def _archivable(step_id: int, step: HistoryStep) -> Step:
    return Step(step_id, step.parts, step.payload, step.match_key, len(step.messages))


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
