"""Which messages of a history form a step (ipcf.md 1), also as it grows call by call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.history import History, HistoryStep, Message


def settled(last: History, messages: Sequence[Message]) -> tuple[HistoryStep, ...]:
    """The steps of the last history that stand in this one as they were: they need not be grouped again.

    The two newest before the first difference may still change (a result can come), so they are not among them; and no
    other step's message may stand between theirs (a result that comes late), so that the rest can be grouped by itself.
    """
    same = len(last.messages)
    if messages[:same] != last.messages:  # the common case, that it only grew, is decided without a loop of ours
        pairs = enumerate(zip(last.messages, messages, strict=False))
        same = next((at for at, (before, now) in pairs if before is not now), min(same, len(messages)))
    reach, count, cuts = -1, 0, [0]
    for step in last.steps:
        if step.positions[0] > reach:
            cuts.append(count)  # everything before this step ends before it begins
        reach = max(reach, step.positions[-1])
        if reach >= same or step.open_calls:
            break
        count += 1
    return last.steps[: max(cut for cut in cuts if cut <= max(0, count - 2))]


class _Draft:
    """A step while its messages are being found."""

    def __init__(self, kind: str, position: int, calls: Sequence[str] = ()) -> None:
        self.kind, self.positions, self.open_calls = kind, [position], list(calls)
        self.answered: set[str] = set()


def group(messages: Sequence[Message], start: int = 0) -> Iterator[HistoryStep]:
    """The steps of some messages, in order. A result belongs to the nearest call of its id that is still open (B1), else
    to the newest exchange that it has already answered (an interim answer and a final one).

    `start` is the position of the first message.
    """
    drafts: list[_Draft] = []
    waiting: dict[str, list[_Draft]] = {}  # by call id, the newest last
    for position, message in enumerate(messages, start):
        newest = drafts[-1] if drafts else None
        if message.kind == "user":
            drafts.append(_Draft("user", position))
        elif message.kind == "assistant":
            if message.joins and newest and newest.kind == "exchange" and not newest.answered:
                newest.positions.append(position)
                newest.open_calls += message.calls
            else:
                newest = _Draft("exchange", position, message.calls)
                drafts.append(newest)
            for call in message.calls:
                waiting.setdefault(call, []).append(newest)
        elif message.kind == "tool":
            _place_answers(drafts, waiting, position, message)
    for draft in drafts:
        mine = tuple([messages[position - start] for position in draft.positions])
        growing = draft is drafts[-1] and mine[-1].joins
        yield HistoryStep(draft.kind, tuple(draft.positions), mine, tuple(draft.open_calls), growing)


def _place_answers(drafts: list[_Draft], waiting: dict[str, list[_Draft]], position: int, message: Message) -> None:
    owner = next((waiting[a][-1] for a in message.answers if waiting.get(a)), None)
    if owner is None:
        owner = next((d for d in reversed(drafts[-2:]) if any(a in d.answered for a in message.answers)), None)
    if owner is None:
        drafts.append(_Draft("orphan", position))
        return
    owner.positions.append(position)
    for answer in message.answers:
        if answer in owner.open_calls:
            owner.open_calls.remove(answer)
            waiting[answer].remove(owner)
        owner.answered.add(answer)
