"""The memory management unit of one session: the verbs of IPCF-1.1 over a store and its postings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmu import terms
from mmu.block import Piece, compose
from mmu.cover import Pick, Selection, cover
from mmu.hydration import Hydration, bound
from mmu.policy import HydrationPolicy
from mmu.postings import Index
from mmu.postings.kept import Kept
from mmu.recall import Ranked, Status, chronology, tiers
from mmu.rendering import headline, render, words
from mmu.step import Part, Step, well_formed
from mmu.tokens import Meter
from store import ColdNode, ColdStore, IndexEntry, Progress, StoreError, encode_text, redact


@dataclass(frozen=True, slots=True)
class Candidate:
    """One step that a query may mean, with where it stands in time (seed 4.1).

    `value` is the literal that follows the query's last matched term, None if there is none; `fault` says why the step
    cannot be read, None if it can.
    """

    step_id: int
    timestamp: str
    value: str | None
    status: Status
    coverage: int
    summary: str
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What a prompt brings back: the block's text and pieces, what found no room, and what could not be read."""

    block: str
    pieces: tuple[Piece, ...]
    dropped: tuple[Pick, ...]
    faults: tuple[StoreError, ...]
    left: int

    @property
    def tokens(self) -> int:
        """Tokens of content that come back, the envelope not counted."""
        return sum(piece.tokens for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class TextStep:
    """A text to archive as a step, with a line about it and its time (ISO 8601, or empty)."""

    step_id: int
    text: str
    summary: str = ""
    timestamp: str = ""


_GROUP = 512  # texts that share a flush


class MMU:
    """Archives, folds, scans, recalls, hydrates and validates.

    `now` gives the time of archiving as ISO 8601 text. `progress` is called while a large archive is indexed anew.
    """

    def __init__(
        self,
        store: ColdStore,
        policy: HydrationPolicy,
        meter: Meter,
        now: Callable[[], str],
        progress: Progress | None = None,
    ) -> None:
        self.store, self.policy, self.meter, self._now = store, policy, meter, now
        self._policy_hash = policy.sha256()
        self._kept = Kept(store, progress)

    @property
    def postings(self) -> Index:
        """The index of the archived steps."""
        return self._kept.index

    def rebuild_index(self, progress: Progress | None = None) -> int:
        """Throw the index away and derive it anew from the store; gives how many steps it holds."""
        self._kept.rebuild(progress)
        return len(self._kept.index)

    def check_index(self) -> bool:
        """Check every byte of the index's files; if one is damaged, the index is derived anew, and the answer is False."""
        return self._kept.validate()

    def refresh(self) -> None:
        """Take in what other processes archived, or forgot, since."""
        self.store.refresh()
        self._kept.follow()

    # -- archive and fold

    def archive(self, steps: Sequence[Step], *, flush: bool = True) -> Sequence[IndexEntry]:
        """Write complete steps to the store; with `flush` they are durable on return. Raises StoreError."""
        return self._keep([self._node(step) for step in steps], flush=flush)

    def fold(
        self, text: str, step_id: int, *, summary: str = "", timestamp: str = "", without_secrets: bool = False
    ) -> IndexEntry:
        """Archive a text under the id that its history gives it (seed `fold`). Raises StoreError."""
        return self._keep([self._text_node(TextStep(step_id, text, summary, timestamp), without_secrets)])[0]

    def fold_many(
        self, texts: Sequence[TextStep], *, without_secrets: bool = False, progress: Progress | None = None
    ) -> None:
        """Archive texts in groups, with one flush each; a group is kept whole or not at all. Raises StoreError."""
        for start in range(0, len(texts), _GROUP):
            group = texts[start : start + _GROUP]
            self._keep([self._text_node(text, without_secrets) for text in group])
            if progress is not None:
                progress(start + len(group), len(texts))

    def _text_node(self, step: TextStep, without_secrets: bool) -> ColdNode:
        text, summary = step.text, step.summary
        sanitized: Mapping[str, int] = {}
        if without_secrets:
            (text, sanitized), (summary, _) = redact(text), redact(summary)
        rendering, summary = well_formed(text), well_formed(summary)
        return self._build(
            step_id=step.step_id,
            payload_kind="text",
            payload=encode_text(text),
            rendering=rendering,
            tokens=self.meter.count(rendering),
            summary=summary,
            found=terms.extract(summary, rendering, self.policy.terms_per_step),
            timestamp=step.timestamp,
            sanitized=sanitized,
        )

    def _keep(self, nodes: Sequence[ColdNode], *, flush: bool = True) -> Sequence[IndexEntry]:
        entries = self.store.archive(nodes, flush=flush)
        self._kept.follow()
        return entries

    def _node(self, step: Step) -> ColdNode:
        rendering = render(step.parts)
        tokens = self.meter.count(rendering)
        summary = headline(step.parts, tokens, self.policy.hot_line_characters)
        return self._build(
            step_id=step.step_id,
            payload_kind="messages",
            payload=step.payload,
            rendering=rendering,
            tokens=tokens,
            summary=summary,
            # The summary only repeats what the rendering says, with sizes that would be found like any other number.
            found=terms.extract("", words(step.parts), self.policy.terms_per_step),
            timestamp=step.timestamp,
            match_key=step.match_key,
            messages=step.messages,
            sanitized=step.sanitized,
        )

    def reprojected(self, node: ColdNode, parts: Sequence[Part]) -> ColdNode:
        """A step as it would be archived now. `parts` are those of its messages, none for a text."""
        limit = self.policy.terms_per_step
        if node.payload_kind == "messages":
            rendering, found = render(parts), terms.extract("", words(parts), limit)
            summary = headline(parts, self.meter.count(rendering), self.policy.hot_line_characters)
        else:
            rendering, summary = node.rendering, node.summary
            found = terms.extract(summary, rendering, limit)
        kept = ("session", "step_id", "payload_kind", "payload", "folding_policy_hash", "timestamp", "folded_at")
        return ColdNode.build(
            **{name: getattr(node, name) for name in (*kept, "match_key", "messages", "sanitized")},
            rendering=rendering,
            tokens=self.meter.count(rendering),
            summary=summary,
            identifiers=found.identifiers,
            files=found.files,
            commands=found.commands,
            errors=found.errors,
            cut=found.cut,
        )

    def reindex(self, nodes: Sequence[ColdNode]) -> None:
        """Give archived steps a new projection (see `reprojected`). Raises StoreError."""
        self.store.reindex(nodes)
        self._kept.follow()

    def _build(self, *, found: terms.Terms, **given: Any) -> ColdNode:
        return ColdNode.build(
            session=self.store.session,
            identifiers=found.identifiers,
            files=found.files,
            commands=found.commands,
            errors=found.errors,
            cut=found.cut,
            folding_policy_hash=self._policy_hash,
            folded_at=self._now(),
            **given,
        )

    # -- scan, hydrate, recall

    def scan(
        self,
        prompt: str,
        *,
        in_view: Collection[int] = (),
        asking: Collection[int] = (),
        budget: int | None = None,
        seal: str = "",
    ) -> Scan:
        """Choose archived steps that are not in view for a prompt, verify and bound them, and compose their block.

        `asking` are the prompt's own steps: they hold no state; `budget` what remains of the turn's tokens (default: the
        policy's); `seal` the session whose envelope encloses the block (default: the store's). A step that does not verify
        stays out and is listed in `faults`.
        """
        selection = self.select(prompt, in_view=in_view, budget=budget)
        pieces: list[Piece] = []
        faults: list[StoreError] = []
        for pick in selection.picks:
            try:
                pieces.append(self._piece(pick, in_view, asking))
            except StoreError as fault:
                faults.append(fault)
        block = compose(pieces, seal or self.store.session)
        return Scan(block, tuple(pieces), selection.dropped, tuple(faults), selection.left)

    def select(self, prompt: str, *, in_view: Collection[int] = (), budget: int | None = None) -> Selection:
        """The cover of a prompt (ipcf.md 6): which steps, in which order, for which terms. Reads no node."""
        return self._kept.ask(
            lambda postings: cover(
                self.weights(prompt),
                postings,
                turn_budget=self.policy.max_rehydration_tokens_per_turn if budget is None else budget,
                call_cap=self.policy.max_rehydration_tokens_per_call,
                lam=self.policy.lambda_permille,
                excluded=in_view,
                named=terms.named_steps(prompt),
            )
        )

    def weights(self, prompt: str) -> Mapping[str, int]:
        """The prompt's terms and what each counts."""
        return dict.fromkeys(sorted(terms.prompt_terms(prompt)), 1)

    def _piece(self, pick: Pick, in_view: Collection[int], asking: Container[int]) -> Piece:
        hydration = self.hydrate(pick.step_id, pick.cost)
        node = hydration.node
        return Piece(
            step_id=pick.step_id,
            text=hydration.text,
            tokens=hydration.tokens,
            whole_tokens=hydration.whole_tokens,
            truncated=hydration.truncated,
            artifact_sha256=node.artifact_sha256,
            time=node.timestamp or node.folded_at,
            chronology=self._kept.ask(lambda postings: chronology(pick.step_id, pick.terms, postings, in_view, asking)),
            terms=tuple(sorted(pick.terms)),
        )

    def hydrate(self, step_id: int, cap: int | None = None) -> Hydration:
        """Read a step, check all its hashes, and bound it to `cap` tokens (default and most: the policy's per call).

        Raises NodeNotFoundError, OrphanedNodeError, BrokenReferenceError or IntegrityCheckError; then nothing is shown.
        """
        limit = self.policy.max_rehydration_tokens_per_call
        return bound(self.store.get(step_id), limit if cap is None else min(cap, limit), self.meter)

    def recall(self, query: str, limit: int = 50) -> tuple[Candidate, ...]:
        """List the steps a query may mean, the latest state first (seed 4.1). Changes no prompt."""
        asked = terms.prompt_terms(query)
        ranked = self._kept.ask(lambda postings: tiers(asked, postings, limit))
        return tuple(self._candidate(query, rank) for rank in ranked)

    def _candidate(self, query: str, rank: Ranked) -> Candidate:
        entry = self.store.entries[rank.step_id]
        value, fault = None, None
        try:
            from mmu.value import value_after  # noqa: PLC0415 - only recall asks for values; its patterns take time

            node = self.store.get(rank.step_id)
            value = value_after(query, (node.summary, node.rendering))
        except StoreError as error:  # the step is listed all the same: hiding it would make an older one the latest
            fault = str(error)
        time = entry.timestamp or entry.folded_at
        return Candidate(rank.step_id, time, value, rank.status, rank.coverage, entry.summary, fault)
