"""Taking a history in: read it, align it with what is known, archive what is new and complete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from harness.align import Alignment, Known, align
from harness.forms import Forms, ResultLines
from harness.history import History, HistoryStep, Reader, compact
from mmu.step import Step
from mmu.tokens import Meter
from mmu.unit import MMU
from store import StoreError

PRIMING = 3  # tokens that every request carries beside its messages


@dataclass(frozen=True, slots=True)
class Beside:
    """What is sent beside the messages, in tokens, and how many cache marks of the caller's stand in it."""

    tokens: int = PRIMING
    marks: int = 0


def beside(meter: Meter, *values: Any) -> Beside:
    """The tools, system blocks and the like of a request. Raises TypeError or ValueError for what JSON cannot hold."""
    raws = [compact(value) for value in values if value]
    marks = sum(raw.count(b'"cache_control":') for raw in raws)
    return Beside(PRIMING + sum(meter.count(raw.decode()) for raw in raws), marks)


@dataclass(frozen=True)
class Reading:
    """A history with the ids of its steps, its outgoing forms, and which steps it archived.

    `faults` says why something was not archived.
    """

    history: History
    alignment: Alignment
    forms: Forms
    beside: Beside
    archived: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """The id of each step, in the order of the history."""
        return self.alignment.ids

    @cached_property
    def steps(self) -> dict[int, HistoryStep]:
        """Every step by its id."""
        return dict(zip(self.ids, self.history.steps, strict=True))

    @property
    def opening(self) -> int | None:
        """The id of the step that opened the turn."""
        found = self.history.opening
        return None if found is None else self.ids[found[0]]

    @property
    def running(self) -> tuple[int, ...]:
        """The steps of the open turn: its opening and all that follows."""
        found = self.history.opening
        return () if found is None else self.ids[found[0] :]

    @property
    def outside(self) -> int:
        """What is sent outside of steps, in tokens: system messages and what stands beside the messages."""
        return self.beside.tokens + self.forms.beside

    def tokens(self, ids: Collection[int]) -> int:
        """What the steps of these ids cost, whole."""
        return sum(self.forms.tokens(step_id) for step_id in ids)


class Intake:
    """Takes the histories of one branch in. All its state is derived: known steps as the store's index lists them, and
    the lines in place of results."""

    def __init__(self, mmu: MMU) -> None:
        self._mmu = mmu
        self._lines: dict[str, ResultLines] = {}
        self._known: list[Known] = []
        self._taken = 0

    def align(self, history: History, order: Sequence[int] = ()) -> Alignment:
        """Give every step of a history its id on this branch. Writes nothing.

        `order` is how the branch showed its steps last, where that was not by their ids.
        """
        self._mmu.refresh()
        known, least = self._branch()
        if order:
            rank = {step_id: place for place, step_id in enumerate(order)}
            known = sorted(known, key=lambda one: (one.step_id in rank, rank.get(one.step_id, one.step_id)))
        return align(known, [step.shown for step in history.steps], least)

    def take(self, history: History, alignment: Alignment, reader: Reader, beside_: Beside) -> Reading:
        """Archive what is new and complete. If archiving fails the steps stay in the prompt, and the faults say why."""
        new = [(alignment.ids[at], history.steps[at]) for at in alignment.new if history.steps[at].complete]
        faults: tuple[str, ...] = ()
        try:
            # The client shows these steps: they must be durable when they leave its prompt or it drops one, not before.
            self._mmu.archive([_archivable(step_id, step) for step_id, step in new], flush=bool(alignment.missing))
        except StoreError as error:
            faults, new = (f"not archived: {error}",), []
        lines = self._lines.setdefault(reader.dialect.name, ResultLines(reader))
        forms = Forms(history, alignment.ids, reader, lines)
        archived = tuple(step_id for step_id, _ in new)
        return Reading(history, alignment, forms, beside_, archived, (*faults, *forms.notes))

    def _branch(self) -> tuple[list[Known], int]:
        """The known steps in order, and the least id that a new one may take."""
        entries = self._mmu.store.entries
        if len(entries) < self._taken:  # a repair took some out
            self._known, self._taken = [], 0
        if fresh := [*islice(entries.values(), self._taken, None)]:
            self._taken = len(entries)
            self._known += [Known(entry.step_id, entry.match_key, entry.messages) for entry in fresh if entry.match_key]
            self._known.sort(key=lambda known: known.step_id)
        # Texts folded by hand have ids of their own; a history's steps then come after them.
        return self._known, max(entries, default=-1) + 1 if len(self._known) < len(entries) else 0


def _archivable(step_id: int, step: HistoryStep) -> Step:
    return Step(step_id, step.parts, step.payload, step.match_key, len(step.messages))
