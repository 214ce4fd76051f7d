"""Whether the calls and results of a request belong together, and what is sent where they do not (hazards A, B).

The check is the last step before the wire. Healing changes the request only: the store keeps what came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.history import Dialect, History, HistoryStep, Message
from harness.reader import Reader

NO_RESULT = "[no result: the call was interrupted before its answer was recorded; what it did is not known]"

Form = tuple[int, Message]
"""A message as it goes out, with the position in the history that it stands for."""


def problems(messages: Sequence[Message], dialect: Dialect) -> tuple[str, ...]:
    """What a provider would refuse: a result without its open call, a call whose answer does not follow before the next
    message (or, where one message must hold all of them, in the next one), a call id used twice.

    """
    found: list[str] = []
    pending: list[str] = []
    used: set[str] = set()
    caller, answered = -1, False
    for position, message in enumerate(messages):
        if not pending and not message.answers and not message.calls:
            answered = answered and message.kind == "system"
            continue
        if message.kind == "system" and dialect.free_order:
            continue
        for answer in message.answers:
            if answer in pending:
                pending.remove(answer)
            else:
                found.append(f"message {position}: a result for call {answer!r}, which is not open")
        split = answered and message.answers and dialect.one_answer_message
        goes_on = (message.answers and not split) or (message.joins and not answered)
        if pending and (not goes_on or (message.answers and dialect.one_answer_message)):
            found.append(f"message {caller}: no answer to call {', '.join(map(repr, pending))} where it must stand")
            pending = []
        answered = bool(message.answers)
        if message.calls:
            repeated = {call for call in message.calls if message.calls.count(call) > 1 or call in pending}
            if dialect.unique_calls:
                repeated |= used & set(message.calls)
            found.extend(f"message {position}: call id {call!r} is used twice" for call in sorted(repeated))
            used.update(message.calls)
            pending = [*pending, *message.calls] if message.joins else list(message.calls)
            caller = position
    if pending:
        found.append(f"message {caller}: no answer to call {', '.join(map(repr, pending))} where it must stand")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Healed:
    """A history's messages as they may be sent, and what had to be done for that."""

    forms: tuple[Form, ...]
    notes: tuple[str, ...] = ()


def heal(history: History, reader: Reader) -> Healed:
    """The messages of a history with every call answered once, right behind it. A sound history stays as it is.

    Late and scattered results move behind their call; of several results of one call the last stays; a result without a
    call is left out; a call without an answer gets one that says so, at the end too: no provider goes on from an open call;
    ids that repeat get a suffix from the second on.
    """
    # What was in order before and has not changed since need not be looked at again.
    start = 0 if reader.dialect.unique_calls else history.settled
    if not problems(history.messages[start:], reader.dialect):
        reader.sound = len(history.messages)
        return Healed(tuple(enumerate(history.messages)))
    found = problems(history.messages, reader.dialect)
    owner = {position: at for at, step in enumerate(history.steps) for position in step.positions}
    names = _Names(reader.dialect.unique_calls)
    forms: list[Form] = []
    for position, message in enumerate(history.messages):
        at = owner.get(position)
        if at is None or history.steps[at].kind == "user":
            forms.append((position, message))
        elif history.steps[at].kind == "orphan":
            rest = _without(message, range(len(message.answers)), reader)
            forms.extend([(position, rest)] if rest else [])
        elif position == history.steps[at].positions[0]:
            forms.extend(_exchange(history.steps[at], names, reader))
    return Healed(tuple(forms), tuple(f"healed: {problem}" for problem in found))


class _Names:
    """Gives call ids that repeat a suffix; the first use keeps its name, so that a cached prefix stays."""

    def __init__(self, whole_request: bool) -> None:
        self._whole, self._uses = whole_request, dict[str, int]()

    def begin(self) -> None:
        """The next exchange: where ids count for one exchange only, they start anew."""
        if not self._whole:
            self._uses = {}

    def take(self, call: str) -> str:
        """A name for one more call of this id."""
        self._uses[call] = self._uses.get(call, 0) + 1
        return call if self._uses[call] == 1 else f"{call}~{self._uses[call]}"


def _exchange(step: HistoryStep, names: _Names, reader: Reader) -> Iterator[Form]:
    """An exchange: its assistant messages, then the answers in the form that the provider wants."""
    dialect = reader.dialect
    names.begin()
    open_names: dict[str, list[str]] = {}
    callers: dict[str, Message] = {}
    for position, message in zip(step.positions, step.messages, strict=True):
        if message.kind != "assistant":
            continue
        taken = [names.take(call) for call in message.calls]
        for call, name in zip(message.calls, taken, strict=True):
            open_names.setdefault(call, []).append(name)
            callers[name] = message
        changed = list(message.calls) != taken
        yield position, reader.message(dialect.renamed(message.fresh(), taken)) if changed else message
    last = step.positions[-1]
    answers = [m for m in step.messages if m.kind == "tool"]
    kept = _kept_answers(answers, open_names)
    bodies = []
    for message, places in zip(answers, kept, strict=True):
        gone = [at for at in range(len(message.answers)) if at not in places]
        rest = _without(message, gone, reader) if gone else message
        if rest is not None:
            body = rest.fresh()
            renamed = [places[at] for at in sorted(places)]
            bodies.append(dialect.renamed(body, renamed) if list(rest.answers) != renamed else body)
    for left in open_names.values():
        bodies += [dialect.answer(name, NO_RESULT, callers[name].fresh()) for name in left]
    if bodies:
        for body in dialect.joined_answers(bodies) if len(bodies) > 1 else bodies:
            yield last, reader.message(body)


def _kept_answers(answers: Sequence[Message], open_names: dict[str, list[str]]) -> list[dict[int, str]]:
    """For each answer message the places of the answers that stay, with the name of the call each belongs to.

    Takes the answered names out of `open_names`. Of more answers than calls the last ones stay.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for number, message in enumerate(answers):
        for at, call in enumerate(message.answers):
            places.setdefault(call, []).append((number, at))
    kept: list[dict[int, str]] = [{} for _ in answers]
    for call, where in places.items():
        waiting = open_names.get(call, [])
        count = min(len(waiting), len(where))
        for (number, at), name in zip(where[len(where) - count :], waiting[:count], strict=True):
            kept[number][at] = name
        open_names[call] = waiting[count:]
    return kept


def _without(message: Message, gone: Sequence[int] | range, reader: Reader) -> Message | None:
    body = reader.dialect.without_answers(message.fresh(), gone)
    return None if body is None else reader.message(body)
