"""The bound on what one step may bring back, with a notice where it cuts (CONF-06)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from store import ColdNode


class Measure(Protocol):
    """What bounding asks of a token meter."""

    def count(self, text: str) -> int: ...

    def head(self, text: str, limit: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Hydration:
    """A step's verified content, ready for a prompt: `tokens` of `whole_tokens` are shown."""

    node: ColdNode
    text: str
    tokens: int
    whole_tokens: int

    @property
    def step_id(self) -> int:
        """The step it is the content of."""
        return self.node.step_id

    @property
    def truncated(self) -> bool:
        """Whether a part was cut, which the text then says at its end."""
        return self.tokens < self.whole_tokens or self.text != self.node.rendering


def bound(node: ColdNode, cap: int, meter: Measure) -> Hydration:
    """A verified node's rendering, cut to at most `cap` tokens with an explicit notice at the end."""
    whole = meter.count(node.rendering)
    if whole <= cap:
        return Hydration(node, node.rendering, whole, whole)
    notice = f"\n[truncated: {cap:,} of {whole:,} tokens of step {node.step_id} are shown]"
    room = cap - meter.count(notice)
    text = meter.head(node.rendering, max(0, room)) + notice
    while room > 0 and (over := meter.count(text) - cap) > 0:  # a seam may cost a token more than its two sides
        room -= over
        text = meter.head(node.rendering, max(0, room)) + notice
    if room <= 0:  # not even the notice fits: what fits of it still says that something is missing
        text = meter.head(notice.strip(), max(0, cap))
    return Hydration(node, text, meter.count(text), whole)
