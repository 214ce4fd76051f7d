"""The harness of one session: the two hooks around a model call, and all that happens between them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from harness import calls, forgetting
from harness.branches import Branch, Branches
from harness.clients import Client
from harness.clock import Clock
from harness.dialects import DialectName, detect, make
from harness.dispatch import Dispatch
from harness.errors import DispatchError, HarnessError, HistoryError
from harness.forgetting import Target
from harness.history import compact
from harness.ledger import Ledger
from harness.plan import Plan
from harness.reader import Reader, Redact
from harness.reading import Beside, beside
from harness.receipt import Receipt
from harness.reply import read_reply
from harness.view import View
from mmu.policy import HydrationPolicy
from mmu.tokens import Meter
from mmu.unit import MMU
from store import ColdStore, StoreError

Mode = Literal["active", "observe", "off"]
OnFault = Literal["bypass", "raise"]


@dataclass
class Turn:
    """A turn as a context: `messages` to send, `reply` to set, `receipt` once the block is left."""

    dispatch: Dispatch
    reply: Any = None
    receipt: Receipt | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What to send."""
        return self.dispatch.messages


@dataclass(frozen=True, slots=True)
class _Open:
    """A dispatch that is not answered yet, and its branch."""

    dispatch: Dispatch
    branch: Branch


class Harness:
    """Keeps one session's prompt small. Open it with `Harness.open`; use it as a context manager or `close` it.

    `mode`: `active`; `observe` archives and measures what would fold and come back, and sends the caller's messages
    unchanged; `off` does nothing. `on_fault`: `bypass` sends the caller's messages when something of ours fails and books
    why; `raise` is for tests. `redact`: `True` takes secrets out of what is archived, and keeps a step that held one in the
    prompt; with `fold` it may fold, and comes back without them. All methods may be called from any thread; dispatches of a
    session take turns.
    """

    def __init__(
        self,
        store: ColdStore,
        *,
        policy: HydrationPolicy,
        meter: Meter,
        clock: Clock,
        client: Client,
        mode: Mode = "active",
        on_fault: OnFault = "bypass",
        redact: Redact = False,
    ) -> None:
        if mode not in get_args(Mode) or on_fault not in get_args(OnFault):
            expected = f"mode {', '.join(get_args(Mode))}; on_fault {', '.join(get_args(OnFault))}"
            raise HarnessError(f"mode {mode!r}, on_fault {on_fault!r}: expected {expected}")
        self.store, self.policy, self.meter, self.mode, self.client = store, policy, meter, mode, client
        self.ledger = Ledger(store)
        self._clock, self._on_fault, self._redact = clock, on_fault, redact
        self._readers: dict[str, Reader] = {}
        self._usual: DialectName = "openai-chat"
        self._branches = Branches(store, lambda branch: MMU(branch, policy, meter, clock.now))
        self._lock = threading.RLock()
        self._open: dict[object, _Open] = {}

    @classmethod
    def open(cls, store: str | Path | ColdStore = ".mmu", **options: Any) -> Harness:
        """Open a session of a store folder; `harness.root.open_harness` names the options."""
        from harness.root import open_harness  # noqa: PLC0415 - the composition root knows this class

        return open_harness(store, **options)

    # -- before the call

    def pre_turn_dispatch(
        self,
        history: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        dialect: DialectName | None = None,
        previous_response_id: str | None = None,
        emergency: bool = False,
    ) -> Dispatch:
        """What to send for a history (the caller's own list, never changed): old steps folded, what the prompt needs of
        them brought back. `tools` and `system` are what the request carries beside it; they are only counted. The dialect
        is told by the messages where it is not named. History that the server holds (`previous_response_id`) is not
        touched. `emergency` folds all that may leave: the provider found the last request too long.

        Raises HistoryError for something that is no list of messages. Any other fault of ours is booked in the receipt and
        the caller's messages go out as they are.
        """
        if isinstance(history, str | bytes | Mapping) or not isinstance(history, Sequence):
            raise HistoryError("history", f"a list of messages was expected, this is {type(history).__name__}")
        with self._lock:
            begun = self._clock.timer()
            if self.mode == "off":
                return self._register(Dispatch(_copies(history), Receipt(0, 0, "off"), object()))
            try:
                if previous_response_id:
                    raise HistoryError("history", f"the server holds what came before {previous_response_id}")
                dispatch = self._prepare(history, beside(self.meter, tools, system), dialect, emergency=emergency)
            except Exception as error:
                if self._on_fault == "raise":
                    raise
                dispatch = self._bypass(history, error)
            draft = replace(dispatch.draft, at=self._clock.now(), pre_ms=self._clock.timer() - begun)
            return self._register(replace(dispatch, draft=draft))

    def _register(self, dispatch: Dispatch) -> Dispatch:
        self._open[dispatch.token] = _Open(dispatch, self._branches.current)
        return dispatch

    def _bypass(self, history: Sequence[Any], error: Exception) -> Dispatch:
        fault = f"bypassed: {type(error).__name__}: {error}"
        turn, size = self._branches.current.turn, _size(history, self.meter)
        receipt = Receipt(turn.number, turn.dispatches, "bypass", full=size, baseline=size, sent=size, faults=(fault,))
        return Dispatch(_copies(history), receipt, object())

    def _book_unanswered(self, branch: Branch) -> None:
        """A turn begins: what was sent on this branch before and never answered will not be any more."""
        for opened in [one for one in self._open.values() if one.branch is branch]:
            if opened.dispatch.turn != branch.turn.number:
                self.post_turn_response(opened.dispatch, None, outcome="unanswered")

    def _reader(self, history: Sequence[Any], named: DialectName | None) -> Reader:
        self._usual = named or detect(history, self._usual)
        if self._usual not in self._readers:
            self._readers[self._usual] = Reader(make(self._usual, self.store.session, self.meter), redact=self._redact)
        return self._readers[self._usual]

    def _prepare(
        self, history: Sequence[Any], beside_: Beside, named: DialectName | None, *, emergency: bool
    ) -> Dispatch:
        reader = self._reader(history, named)
        read = reader.read(history)
        branch, alignment = self._branches.take(read)
        forgotten = branch.intake.forgotten(alignment)
        if forgotten:
            gone = {position for at in forgotten for position in read.steps[at].positions}
            read = reader.read([message for position, message in enumerate(history) if position not in gone])
            branch, alignment = self._branches.take(read)
        reading = branch.intake.take(read, alignment, reader, beside_)
        now = self._clock.wall()

        def plan(*, may_fold: bool) -> Plan:
            return branch.planner.plan(
                reading, branch.view, branch.turn, reader.dialect, now=now, may_fold=may_fold, emergency=emergency
            )

        planned, faults = plan(may_fold=True), branch.doubts
        branch.doubts = []
        try:
            if planned.view != branch.view:
                branch.keep(view=planned.view)
        except StoreError as error:  # another process would send other bytes: nothing folds
            faults.append(f"not folded: {error}")
            planned = plan(may_fold=False)
        begins = planned.turn.number != branch.turn.number
        try:
            branch.keep(turn=planned.turn)
        except StoreError as error:
            faults.append(f"the open turn was not saved: {error}")
        if begins:
            self._book_unanswered(branch)
        sibling = any(one.dispatch.turn == planned.turn.number for one in self._open.values())
        receipt = replace(
            planned.receipt,
            mode=self.mode,
            sibling=sibling,
            branch=branch.store.session,
            forgotten=tuple(forgotten.values()),
            faults=(*planned.receipt.faults, *faults),
        )
        messages = _copies(history) if self.mode == "observe" else planned.request.messages
        return Dispatch(messages, receipt, object(), reading.ids)

    # -- after the call

    def post_turn_response(self, dispatch: Dispatch, reply: Any = None, *, outcome: str = "") -> Receipt:
        """Book the answer; if it calls no tool the turn is over and what was brought back is evicted.

        `reply` is the provider's object, a dict, a text or None; `outcome` names an answer that did not come whole
        (`failed`, `partial`). Raises DispatchError for a dispatch that is not open here.
        """
        with self._lock:
            begun = self._clock.timer()
            opened = self._open.pop(dispatch.token, None)
            if opened is None:
                raise DispatchError(
                    "this dispatch is not open here: it was answered before, or belongs to another session"
                )
            branch = opened.branch
            answer = read_reply(reply)
            outcome = outcome or ("called" if answer.calls else "answered")
            receipt = replace(dispatch.draft, outcome=outcome, usage=answer.usage)
            if self.mode == "off":
                return receipt
            faults = list(receipt.faults)
            # Without an answer the turn is not over: whoever takes the session up again sends the same bytes.
            ends = outcome not in ("called", "unanswered", "overflow")
            over = ends and receipt.turn == branch.turn.number and branch.turn.is_open
            if over and not receipt.sibling and receipt.mode != "bypass":
                receipt = replace(receipt, evicted=(*receipt.evicted, *(h.step_id for h in branch.turn.hydrated)))
                try:
                    # Where nothing was brought back, a restart finds nothing in place, whatever it thinks of the turn.
                    branch.keep(turn=branch.turn.evicted(), save=bool(receipt.hydrated))
                except StoreError as error:
                    faults.append(f"the end of the turn was not saved: {error}")
            receipt = replace(receipt, faults=tuple(faults), post_ms=self._clock.timer() - begun)
            try:
                self.ledger.append(receipt)
            except StoreError as error:
                receipt = replace(receipt, faults=(*faults, f"not booked: {error}"))
            return receipt

    @contextmanager
    def turn(self, history: Sequence[Any], **options: Any) -> Iterator[Turn]:
        """Both hooks as a context: send `turn.messages`, set `turn.reply`, read `turn.receipt` afterwards.

        `options` are those of `pre_turn_dispatch`. An exception inside is booked as `failed` and flies on.
        """
        turn = Turn(self.pre_turn_dispatch(history, **options))
        try:
            yield turn
        except BaseException:
            turn.receipt = self.post_turn_response(turn.dispatch, None, outcome="failed")
            raise
        turn.receipt = self.post_turn_response(turn.dispatch, turn.reply)

    # -- around a client

    def completion(self, *, messages: Sequence[Any], **options: Any) -> Any:
        """One call with the hooks around it. Without a `client` of its own the harness calls `litellm.completion`.

        Takes that function's options (`model`, `stream`, `tools`, ...) and returns what it returns; the client's own
        exceptions fly on unchanged.
        """
        return calls.completion(self, messages, options)

    async def acompletion(self, *, messages: Sequence[Any], **options: Any) -> Any:
        """The same around `litellm.acompletion`."""
        return await calls.acompletion(self, messages, options)

    # -- steering

    def pin(self, step_id: int) -> None:
        """Keep a step in view: it does not fold from now on. Raises StoreWriteError."""
        self._pinned(self._branches.current.view.pins | {step_id})

    def unpin(self, step_id: int) -> None:
        """Let a step fold again. Raises StoreWriteError."""
        self._pinned(self._branches.current.view.pins - {step_id})

    def forget(self, *step_ids: int, matching: str = "") -> tuple[Target, ...]:
        """Erase steps, by id or by a text in them, from every file of the session, on all branches; gives what was erased.

        What the client still sends of them is from then on neither archived nor sent. Raises StoreError.
        """
        with self._lock:
            targets = {*forgetting.named(self.store, step_ids)}
            if matching:
                targets |= {*forgetting.matching(self.store, matching)}
            gone = tuple(sorted(targets, key=lambda target: (target.session, target.step_id)))
            forgetting.forget(self.store, gone, at=self._clock.now())
            return gone

    def _pinned(self, pins: frozenset[int]) -> None:
        with self._lock:
            branch = self._branches.current
            branch.keep(view=replace(branch.view, pins=pins))

    @property
    def mmu(self) -> MMU:
        """The memory of the current branch."""
        return self._branches.current.mmu

    @property
    def view(self) -> View:
        """What is out of the current branch's prompt."""
        return self._branches.current.view

    @property
    def faults(self) -> tuple[str, ...]:
        """What is broken in the store, as far as it was seen."""
        return tuple(map(str, self.store.faults))

    @property
    def folded(self) -> frozenset[int]:
        """The steps that are out of the prompt."""
        return self._branches.current.view.folded

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Every booked dispatch, in order."""
        return self.ledger.read()[0]

    def close(self) -> None:
        """Book what was never answered, and finish filing."""
        with self._lock:
            for opened in list(self._open.values()):
                self.post_turn_response(opened.dispatch, None, outcome="unanswered")
            try:
                self._branches.close()
            except StoreError as error:
                if self._on_fault == "raise":
                    raise
                warnings.warn(f"prompt-mmu: not filed: {error}", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _size(history: Sequence[Any], meter: Meter) -> int:
    """About what a history costs that could not be read; 0 if it cannot even be written down."""
    try:
        return meter.count(compact(list(history)).decode())
    except (TypeError, ValueError, RecursionError):
        return 0


def _copies(history: Sequence[Any]) -> list[Any]:
    """The caller's messages in lists and objects that nobody else holds. Other values are passed on as they are."""
    try:
        return [_copy(message) for message in history]
    except RecursionError:
        return list(history)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(field) for name, field in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value
