"""The two demonstration sessions, and what can be said about a run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from harness import scenario
from harness.errors import SessionFileError
from harness.receipt import Receipt
from harness.recorded import Recorded, conversation, load
from harness.report import totals
from mmu.policy import HydrationPolicy


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about the past: the turn that asks it, and the steps that hold the newest answer, and older states."""

    turn: int
    prompt: str
    evidence: tuple[int, ...]
    stale: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """A demonstration: what it shows, the recording, the policy it runs under, and its questions."""

    title: str
    about: str
    recorded: Recorded
    policy: HydrationPolicy
    probes: tuple[Probe, ...]


def stories() -> tuple[Story, ...]:
    """The 500-turn scenario of the seed, and the recorded session of a scripted agent."""
    return (_scenario(), _relay())


def _scenario() -> Story:
    recorded = conversation("scenario", {"messages": scenario.messages()})
    ids = [named.step_id for named in scenario.NAMED]
    wanted = {0: ((137,), (91, 37)), 2: ((342, 137, 447), (91, 37))}
    turns = _turns(recorded)
    probes = []
    for number, (question, _) in enumerate(scenario.QUESTIONS):
        evidence, stale = wanted.get(number, ((), ()))
        if evidence:
            probes.append(Probe(turns[question], question, evidence, stale))
    return Story(
        "The seed's scenario",
        f"500 steps; a port and a migration change on the way (steps {', '.join(map(str, ids))}), then questions about them.",
        recorded,
        HydrationPolicy(high_water_tokens=6_000, low_water_tokens=1_500, hot_line_tokens=600),
        tuple(probes),
    )


def _relay() -> Story:
    recorded = load(relay_file())[0]
    messages: list[dict[str, Any]] = list(recorded.document["messages"])
    ids = _step_ids(messages)
    turns = _turns(recorded)
    probes = tuple(
        Probe(
            turns[messages[probe["message"]]["content"]],
            messages[probe["message"]]["content"],
            tuple(sorted({ids[place] for place in probe["evidence"]})),
            tuple(sorted({ids[place] for place in probe["stale"]})),
        )
        for probe in recorded.document["probes"]
    )
    return Story(
        "A recorded agent session",
        str(recorded.document["about"]),
        recorded,
        HydrationPolicy(high_water_tokens=16_000, low_water_tokens=4_000),
        probes,
    )


def relay_file() -> Path:
    """The recorded session: in the installed package, else in the source tree. Raises SessionFileError."""
    places = (
        Path(str(files("harness"))) / "data" / "relay.json",
        Path(__file__).parent.parent / "fixtures/sessions/relay.json",
    )
    for place in places:
        if place.is_file():
            return place
    raise SessionFileError(f"{places[0]}: the demonstration session is not part of this installation")


def _turns(recorded: Recorded) -> dict[str, int]:
    """The number of the turn that each user message opens."""
    users = [m for m in recorded.calls[-1].history if m.get("role") == "user"]
    return {str(message["content"]): number for number, message in enumerate(users, 1)}


def _step_ids(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """For each message the id of its step: the position of the step's first message, system messages not counted."""
    ids: list[int] = []
    position = 0
    for message in messages:
        own = message["role"] in ("user", "assistant")
        ids.append(position if own else ids[-1] if ids else 0)
        position += message["role"] not in ("system", "developer")
    return ids


def prompts(story: Story) -> dict[int, str]:
    """The words of each question, by turn, shortened for a table."""
    return {p.turn: p.prompt if len(p.prompt) <= 90 else p.prompt[:89] + "…" for p in story.probes}


def outcome(probe: Probe, receipts: Sequence[Receipt]) -> str:
    """`all` evidence was in the prompt of that turn, `some`, `none`, or `stale`: an older state without the newest."""
    mine = [receipt for receipt in receipts if receipt.turn == probe.turn]
    back = {piece.step_id for receipt in mine for piece in receipt.hydrated}
    gone = {step for receipt in receipts if receipt.turn <= probe.turn for step in receipt.folded}
    visible = {step for step in (*probe.evidence, *probe.stale) if step in back or step not in gone}
    found = visible & set(probe.evidence)
    if len(found) == len(probe.evidence):
        return "all"
    if found:
        return "some"
    return "stale" if visible & set(probe.stale) else "none"


def verdict(story: Story, receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """What the questions found."""
    results = [outcome(probe, receipts) for probe in story.probes]
    counts = ", ".join(f"{results.count(kind)} {kind}" for kind in ("all", "some", "none", "stale") if kind in results)
    return (f"{len(results)} questions about the past; evidence in the prompt: {counts}",)


def findings(story: Story, receipts: Sequence[Receipt]) -> dict[str, Any]:
    """A run as a JSON object."""
    probes = [
        {"turn": p.turn, "prompt": p.prompt, "evidence": p.evidence, "outcome": outcome(p, receipts)}
        for p in story.probes
    ]
    shown = {receipt.turn for receipt in receipts if receipt.hydrated}
    found = [p.turn for p in story.probes if outcome(p, receipts) == "all" and p.turn in shown]
    example = found[0] if found else receipts[-1].turn
    return {
        "title": story.title,
        "totals": totals(receipts).document(),
        "probes": probes,
        "example_turn": example,
        "receipts": [receipt.document() for receipt in receipts],
    }
