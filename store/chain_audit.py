"""Walking a session's chain from its first link: what was edited, cut off, put back, or forgotten by intent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from store.chain import Head, commitment, genesis, link
from store.errors import IntegrityCheckError
from store.log import Damage, Record
from store.node import IndexEntry


class ChainAudit:
    """Feed it the records of all generations, in order; it gives the entries, and collects `faults` and `forgotten`.

    `said`: heads that were written down elsewhere, by who says so; `compare` holds the chain against them at the end.
    """

    def __init__(self, session: str, said: Mapping[str, Head]) -> None:
        self.head = Head(0, genesis(session))
        self._said = said
        self._wanted = {head.count for head in said.values()}
        self.faults: list[IntegrityCheckError] = []
        self.forgotten: list[int] = []
        self._links = {0: self.head.link}
        self._sure = True  # whether the link before is known: not behind damage

    def walk(self, found: Iterator[Record | Damage], where: str) -> Iterator[tuple[int, IndexEntry]]:
        """Go through the records of a file named `where`; gives the place in the chain and the entry of each step."""
        for one in found:
            if isinstance(one, Damage):
                self._fault(None, f"{where} bytes {one.start} to {one.stop}", "whole records", "damaged")
                self._sure = False
                continue
            try:
                entry = self._step(one.body)
            except (KeyError, TypeError, ValueError) as error:
                self._fault(None, f"{where} at byte {one.start}", "a known record", f"unreadable ({error!r})")
                continue
            if entry is not None:
                yield self.head.count - 1, entry

    def _step(self, body: dict[str, Any]) -> IndexEntry | None:
        match body["record"]:
            case "archive":
                entry = IndexEntry.parse(body["entry"])
                self._link(body, commitment(body["salt"], body["entry"]), entry.step_id)
                return entry
            case "forgotten":
                self._link(body, body["commitment"], body["step"])
                if body["why"] == "forgotten":
                    self.forgotten.append(body["step"])
            case "head":
                self._stands("head", Head.parse(body["chain"]))
            case "seal":
                self._stands("seal", Head(body["count"], body["link"]))
            case "filed" | "erase" | "erased" | "exported" | "table":
                pass
            case other:
                raise ValueError(f"record {other!r}")
        return None

    def _link(self, body: dict[str, Any], committed: str, step_id: int) -> None:
        place = body["seq"]
        if place != self.head.count:
            self._gap(place)
        if self._sure and link(self.head.link, committed) != body["link"]:
            self._fault(step_id, "entry in the chain", "as it was archived", "edited, or out of its place")
        self.head, self._sure = Head(place + 1, body["link"]), True
        self._note()

    def _gap(self, place: int) -> None:
        if self._sure and place > self.head.count:
            self._fault(
                None, "history", "every entry", f"without entries {self.head.count} to {place - 1} of the chain"
            )
        elif place < self.head.count:
            self._fault(None, "history", "every entry once", f"with entry {place} of the chain again")
        self._sure = False

    def _stands(self, what: str, said: Head) -> None:
        if said == self.head:
            return
        if self._sure:
            self._fault(None, f"history before a {what}", str(said), str(self.head))
        self.head, self._sure = said, True
        self._note()

    def _note(self) -> None:
        if self.head.count in self._wanted:
            self._links[self.head.count] = self.head.link

    def _fault(self, step_id: int | None, what: str, stored: str, found: str) -> None:
        self.faults.append(IntegrityCheckError(step_id, what, stored, found))

    def compare(self) -> None:
        """Hold the chain against the heads that were written down."""
        for who, said in self._said.items():
            if said.count > self.head.count:
                lost = f"{said.count - self.head.count} fewer: the newest were cut off, or an older state was put back"
                self._fault(None, "history", f"{said.count} entries, as {who} says", lost)
            elif self._links.get(said.count, said.link) != said.link:
                self._fault(None, "history", f"as {who} says", f"another one before entry {said.count}")
