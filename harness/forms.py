"""How the messages of a history go out: whole, with the results of archived exchanges replaced by a line, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from harness.history import History, HistoryStep, Message
from harness.pairing import Form, heal
from harness.reader import Reader
from mmu.rendering import exit_status
from mmu.step import Result


class Forms:
    """The outgoing messages of one history, grouped by step id. What stands in no step has none."""

    def __init__(self, history: History, ids: Sequence[int], reader: Reader, lines: ResultLines) -> None:
        self._lines = lines
        self._steps: Mapping[int, HistoryStep] = dict(zip(ids, history.steps, strict=True))
        healed = heal(history, reader)
        self.notes = healed.notes
        owner: list[int | None] = [None] * len(history.messages)
        for step_id, step in self._steps.items():
            for position in step.positions:
                owner[position] = step_id
        self._messages: list[tuple[int | None, Form]] = [
            (owner[form[0]], form) for form in healed.forms if form[1].kind != "ours"
        ]
        self._healed: dict[int, list[Message]] | None = None
        if healed.notes:
            self._healed = {step_id: [] for step_id in ids}
            for owned, (_, message) in self._messages:
                if owned is not None:
                    self._healed[owned].append(message)
        self.beside = sum([form[1].tokens for owned, form in self._messages if owned is None])

    def tokens(self, step_id: int, *, cut: bool = False) -> int:
        """What a step costs as it goes out, whole or with its results cut."""
        step = self._steps[step_id]
        if self._healed is None and not cut:
            return step.tokens
        messages = step.messages if self._healed is None else self._healed[step_id]
        return sum([(self._lines.cut(step_id, step, m) if cut else m).tokens for m in messages])

    def outgoing(self, folded: Collection[int], cut: Collection[int]) -> list[tuple[int | None, Form]]:
        """The messages that are sent, each with its step."""
        out = [one for one in self._messages if one[0] not in folded]
        if not cut:
            return out
        return [
            (step_id, (form[0], self._lines.cut(step_id, self._steps[step_id], form[1])))
            if step_id is not None and step_id in cut
            else (step_id, form)
            for step_id, form in out
        ]


class ResultLines:
    """Messages whose results are replaced by one stable line each. The same step and message give the same bytes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._made: dict[tuple[int, bytes], Message] = {}

    def cut(self, step_id: int, step: HistoryStep, message: Message) -> Message:
        """A message of an archived step with a line in the place of each result; one without results as it is."""
        if not message.answers:
            return message
        key = (step_id, message.wire or message.raw)
        made = self._made.get(key)
        if made is None:
            names = step.call_names()
            results = {part.call_id: part for part in message.parts if isinstance(part, Result)}
            share = message.tokens // max(1, len(message.answers))

            def line(call: str) -> str:
                result = results.get(call)
                status = exit_status([result]) if result else ""
                name = names.get(call.partition("~")[0], "tool")
                return f"[archived: step {step_id}, {name}{status}, {share:,} tokens]"

            made = self._reader.message(self._reader.dialect.with_results(message.fresh(), line))
            self._made[key] = made
        return made
