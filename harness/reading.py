"""Taking a history in: read it, align it with what is known, archive what is new and complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.align import Alignment, Known, align
from harness.forms import Forms, ResultLines
from harness.history import History, HistoryStep, compact
from harness.reader import Reader
from mmu.step import Step
from mmu.tokens import Meter
from mmu.unit import MMU
from store import Forgotten, IndexEntry, StoreError

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
        self._epoch, self._count, self._least, self._highest, self._by_hand = -1, 0, 0, -1, False
        self._forgotten = Forgotten()

    def align(self, history: History, order: Sequence[int] = ()) -> Alignment:
        """Give every step of a history its id on this branch. Writes nothing.

        `order` is how the branch showed its steps last, where that was not by their ids.
        """
        self._mmu.refresh()
        live, least = self._branch()
        known = self._with_forgotten(live, history)
        if order:
            rank = {step_id: place for place, step_id in enumerate(order)}
            known = sorted(known, key=lambda one: (one.step_id in rank, rank.get(one.step_id, one.step_id)))
        found = align(known, [step.shown for step in history.steps], least)
        # A forgotten step that the client does not show has not gone now.
        return found.without(self._forgotten.steps) if len(known) > len(live) else found

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
        store = self._mmu.store
        version = store.version
        if version.epoch != self._epoch:  # something old was changed: a repair took a step out, one was forgotten
            self._known, self._by_hand, self._least, self._epoch = [], False, 0, version.epoch
            fresh: Iterable[IndexEntry] = store.entries.values()
            self._forgotten = store.forgotten
            self._least = max(self._forgotten.steps, default=-1) + 1
        else:
            fresh = store.recent(self._count) if version.count > self._count else ()
        self._count = version.count
        if fresh := list(fresh):
            self._known += [Known(entry.step_id, entry.match_key, entry.messages) for entry in fresh if entry.match_key]
            self._known.sort(key=lambda known: known.step_id)
            self._highest = max(self._highest, *(entry.step_id for entry in fresh))
            self._by_hand = self._by_hand or not all(entry.match_key for entry in fresh)
        # Texts folded by hand have ids of their own; a history's steps then come after them.
        return self._known, max(self._least, self._highest + 1 if self._by_hand else 0)

    def forgotten(self, alignment: Alignment) -> dict[int, int]:
        """Which steps of a history (by place) are forgotten ones (step id) that the client still sends. None is in the open
        turn: there a person says the same words again."""
        gone = self._forgotten.steps.keys() - self._mmu.store.entries.keys() if self._forgotten.steps else ()
        return {at: step_id for at, step_id in enumerate(alignment.ids) if step_id in gone}

    def _with_forgotten(self, known: list[Known], history: History) -> list[Known]:
        """The known steps with the forgotten ones that a history shows before its open turn, in order."""
        if not self._forgotten.marks:
            return known
        end = history.opening[0] if history.opening else len(history.steps)
        entries = self._mmu.store.entries
        copies = Counter(step.match_key for step in history.steps[:end])
        copies.subtract(one.key for one in known)  # a copy of a step that was not forgotten is that one's
        found: list[Known] = []
        for key, count in copies.items():
            if count > 0:
                ids = [step_id for step_id in self._forgotten.known(key) if step_id not in entries]
                found += [Known(step_id, key, 1) for step_id in ids[:count]]
        return sorted([*known, *found], key=lambda one: one.step_id)


def _archivable(step_id: int, step: HistoryStep) -> Step:
    return Step(step_id, step.parts, step.payload, step.match_key, len(step.messages), sanitized=step.sanitized)
