"""What leaves a prompt at a dispatch: whole steps between turns, results of exchanges inside one (ipcf.md 8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from harness.history import HistoryStep
from harness.reading import Reading
from harness.view import View
from mmu.folding import Foldable, choose, fit, hot_line, line_length
from mmu.policy import HydrationPolicy
from mmu.rendering import shorten
from mmu.tokens import Meter
from store import ColdStore, StoreError

LEAST_KEPT = 2  # exchanges that keep their results, however long they are


@dataclass(frozen=True, slots=True)
class Left:
    """The view after a fold; which steps left whole, which lost their results; what that freed; what could not leave."""

    view: View
    whole: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    freed: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """When to fold (`high`) and how far (`low`), in tokens, and how much of the newest exchanges stays."""

    high: int
    low: int
    keep: int
    least: int = LEAST_KEPT


def marks(policy: HydrationPolicy, *, cold: bool, emergency: bool) -> Marks:
    """The marks of a dispatch. With a cold cache folding is free; in an emergency all that may leave does."""
    if emergency:
        return Marks(0, 0, 0, 1)
    low = policy.low_water_tokens
    return Marks(low if cold else policy.high_water_tokens, low, policy.keep_tokens)


def fold(
    reading: Reading,
    view: View,
    store: ColdStore,
    policy: HydrationPolicy,
    meter: Meter,
    *,
    hot: int,
    begins: bool,
    at: Marks,
) -> Left:
    """What leaves. `hot`: what hot lines cost by now. `begins`: the dispatch opens a turn, so whole steps may go, and those
    whose results went before do."""
    steps = reading.steps
    total = reading.outside + hot
    total += sum([reading.forms.tokens(s, cut=s in view.cut) for s in steps if s not in view.folded])
    if total <= at.high and not (begins and view.cut):
        return Left(view)
    faults: list[str] = []
    whole: tuple[int, ...] = ()
    if begins:
        whole = _verified(_whole(reading, view, store, total, at), store, faults)
    freed = sum(reading.forms.tokens(s, cut=s in view.cut) for s in whole)
    cut = _verified(_cut(reading, view, store, total - freed, at, gone=set(whole)), store, faults)
    freed += sum(reading.forms.tokens(s) - reading.forms.tokens(s, cut=True) for s in cut)
    if not whole and not cut:
        return Left(view, faults=tuple(faults))
    view = replace(view, cut=(view.cut | set(cut)) - set(whole))
    if whole:
        line = lines_of(store, policy.hot_line_characters)
        lined = fit(view.lined | set(whole), policy.hot_line_tokens, lambda s: meter.count(line(s) + "\n"))
        view = replace(view, folded=view.folded | set(whole), lined=lined)
    return Left(view, whole, cut, freed, tuple(faults))


def _staying(reading: Reading, view: View) -> set[int]:
    """Steps that never leave whole: the first user message, the open turn, pins, those whose secrets are not in the store,
    and where the service's memory begins."""
    first = next((s for s, step in reading.steps.items() if step.kind == "user"), None)
    steps = reading.steps.items()
    holding = {s for s, step in steps if step.held or any(message.boundary for message in step.messages)}
    return {*view.pins, *reading.running, *holding} | ({first} if first is not None else set())


def _whole(reading: Reading, view: View, store: ColdStore, total: int, at: Marks) -> tuple[int, ...]:
    """Whole steps, oldest first, until the low mark is met; exchanges without their results leave in any case."""
    staying = _staying(reading, view)
    steps = {s: step for s, step in reading.steps.items() if s not in view.folded}
    free = {s for s, step in steps.items() if step.complete and s in store.entries and s not in staying}
    sized = [Foldable(s, reading.forms.tokens(s, cut=s in view.cut), s in free) for s in steps]
    chosen = set(choose(sized, total, high=at.high, low=at.low)) | (free & view.cut)
    return tuple(_apart(steps, chosen))


def _apart(steps: dict[int, HistoryStep], chosen: Collection[int]) -> Iterable[int]:
    """The chosen steps, without a user message that keeps two assistant messages apart: a provider would join them."""
    before, order = "", list(steps)
    for place, step_id in enumerate(order):
        if step_id not in chosen:
            before = steps[step_id].kind
            continue
        after = next((steps[s].kind for s in order[place + 1 :] if s not in chosen), "")
        if steps[step_id].kind == "user" and before == after == "exchange":
            before = "user"
            continue
        yield step_id


def _cut(
    reading: Reading, view: View, store: ColdStore, total: int, at: Marks, *, gone: Collection[int]
) -> tuple[int, ...]:
    """Exchanges that lose their results, oldest first; the newest within what is kept stay, and so do open calls."""
    steps = {s: step for s, step in reading.steps.items() if s not in view.folded and s not in gone}
    exchanges = [s for s, step in steps.items() if step.kind == "exchange"]
    kept: set[int] = set()
    size = 0
    for step_id in reversed(exchanges):
        size += reading.forms.tokens(step_id)
        if len(kept) >= at.least and size > at.keep:
            break
        kept.add(step_id)
    staying = kept | view.cut | view.pins | {s for s in exchanges if steps[s].held}
    free = {s for s in exchanges if steps[s].complete and s in store.entries and s not in staying}
    sized = [Foldable(s, reading.forms.tokens(s) - reading.forms.tokens(s, cut=True), True) for s in steps if s in free]
    return choose([one for one in sized if one.tokens > 0], total, high=at.high, low=at.low)


def _verified(step_ids: Iterable[int], store: ColdStore, faults: list[str]) -> tuple[int, ...]:
    """The steps that are durable and read back whole from the store: only they may leave the prompt."""
    sound: list[int] = []
    chosen = list(step_ids)
    try:
        if chosen:
            store.flush()
    except StoreError as error:
        faults.append(f"not folded: {error}")
        return ()
    for step_id in chosen:
        try:
            store.get(step_id)
        except StoreError as error:
            faults.append(f"not folded: {error}")
            continue
        sound.append(step_id)
    return tuple(sound)


def lines_of(store: ColdStore, most: int) -> Callable[[int], str]:
    """What gives the hot line of a folded step, at most `most` characters: its summary in the store's index, shortened."""

    def line(step_id: int) -> str:
        entry = store.entries.get(step_id)
        if entry is None:
            return hot_line(step_id, "(not in the store)")
        return hot_line(step_id, shorten(entry.summary, line_length(entry.size, most) - len(hot_line(step_id, ""))))

    return line
