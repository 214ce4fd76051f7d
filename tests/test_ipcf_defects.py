"""Sixteen seeded defects: each turns exactly one conformance test red, so no test is green by accident."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import orjson
import pytest

import harness.reading
import mmu.terms
import mmu.unit
from harness import conformance
from harness.plan import Planner
from harness.view import PlacedBlock
from mmu.hydration import Hydration, bound
from mmu.unit import MMU
from store import BrokenReferenceError, ColdNode, FileStore, IndexEntry, IntegrityCheckError, NodeNotFoundError
from store.layout import replace as write_file

Defect = AbstractContextManager[Any]


def truncates_long_payloads() -> Defect:
    real = MMU.fold
    return patch.object(MMU, "fold", lambda self, text, step_id, **more: real(self, text[:65_536], step_id, **more))


def rewrites_messages_canonically() -> Defect:
    real = MMU._node

    def node(self: MMU, step: Any) -> ColdNode:
        return real(self, replace(step, payload=orjson.dumps(orjson.loads(step.payload), option=orjson.OPT_SORT_KEYS)))

    return patch.object(MMU, "_node", node)


def ids_from_a_counter() -> Defect:
    real = harness.reading.align

    def align(known: Any, shown: Any, next_id: int = 0) -> Any:
        found = real(known, shown, next_id)
        ids = list(found.ids)
        for number, at in enumerate(found.new):
            ids[at] = len(known) + number
        return replace(found, ids=tuple(ids))

    return patch.object(harness.reading, "align", align)


def oldest_state_is_called_the_latest() -> Defect:
    real = mmu.unit.tiers

    def tiers(terms: Any, postings: Any, limit: Any) -> Any:
        ranked = real(terms, postings, limit)
        primary = [r for r in ranked if r.status != "related"]
        swapped = [replace(r, step_id=other.step_id) for r, other in zip(primary, reversed(primary), strict=True)]
        return (*swapped, *(r for r in ranked if r.status == "related"))

    return patch.object(mmu.unit, "tiers", tiers)


def tidies_blanks_up() -> Defect:
    def tidy(node: ColdNode, cap: int, meter: Any) -> Hydration:
        found = bound(node, cap, meter)
        return replace(found, text=found.text.replace("  ", " "))

    return patch.object(mmu.unit, "bound", tidy)


def forgets_the_cap() -> Defect:
    return patch.object(mmu.unit, "bound", lambda node, cap, meter: bound(node, 10**9, meter))


def a_smaller_older_step_takes_the_place() -> Defect:
    real = mmu.unit.cover

    def cover(prompt: Any, postings: Any, **options: Any) -> Any:
        excluded = set(options.pop("excluded"))
        found = real(prompt, postings, excluded=excluded, **options)
        while found.dropped and (over := {pick.step_id for pick in found.dropped}) - excluded:
            excluded |= over
            found = real(prompt, postings, excluded=excluded, **options)
        return found

    return patch.object(mmu.unit, "cover", cover)


def blocks_accumulate() -> Defect:
    real, kept = Planner._scan, dict[int, tuple[PlacedBlock, ...]]()

    def scan(self: Planner, *args: Any, **options: Any) -> Any:
        turn, dropped, faults = real(self, *args, **options)
        if turn.blocks:  # those of the turns before come along
            kept[id(self)] = (*kept.get(id(self), ()), *turn.blocks)
            turn = replace(turn, blocks=kept[id(self)])
        return turn, dropped, faults

    return patch.object(Planner, "_scan", scan)


def reading_changes_the_index() -> Defect:
    real = MMU.recall

    def recall(self: MMU, *args: Any) -> Any:
        found = real(self, *args)
        for candidate in found[:1]:
            self.postings.remove(candidate.step_id)
        return found

    return patch.object(MMU, "recall", recall)


def skips_verification() -> Defect:
    def unchecked(entry: IndexEntry, raw: bytes, session: str) -> ColdNode:
        try:
            return ColdNode._parse(orjson.loads(raw))
        except orjson.JSONDecodeError as error:
            raise IntegrityCheckError(entry.step_id, "node", "whole", "torn") from error

    return patch("store.file_store.verified", unchecked)


def gives_a_neighbour_for_a_missing_step() -> Defect:
    real = FileStore.get

    def get(self: FileStore, step_id: int) -> ColdNode:
        try:
            return real(self, step_id)
        except NodeNotFoundError:
            return real(self, min(self.entries, key=lambda other: abs(other - step_id)))

    return patch.object(FileStore, "get", get)


def time_stands_in_the_projection() -> Defect:
    real = ColdNode.projection
    return patch.object(
        ColdNode,
        "projection",
        lambda self: {**real(self), "normalized_content": real(self)["normalized_content"] + self.folded_at},
    )


def repairs_in_silence() -> Defect:
    real = FileStore.get

    def get(self: FileStore, step_id: int) -> ColdNode:
        try:
            return real(self, step_id)
        except BrokenReferenceError:
            write_file(self._node_path(step_id), self.logged(step_id) or b"")
            return real(self, step_id)

    return patch.object(FileStore, "get", get)


def trusts_the_path_in_the_entry() -> Defect:
    real = FileStore.get

    def get(self: FileStore, step_id: int) -> ColdNode:
        entry = self.entries.get(step_id)
        if entry is not None and (self.folder / entry.file).resolve() != (self.folder / entry.file).absolute():
            return ColdNode.from_bytes((self.folder / entry.file).resolve().read_bytes(), step_id)
        return real(self, step_id)

    return patch.object(FileStore, "get", get)


def ranks_without_taking_terms_out() -> Defect:
    real = mmu.unit.cover

    def cover(prompt: Any, postings: Any, **options: Any) -> Any:
        found = real(prompt, postings, **options)
        if found.dropped:
            return found
        more = {step for term in prompt for step in postings.steps(term)} - {pick.step_id for pick in found.picks}
        extra = [replace(found.picks[0], step_id=step, cost=50) for step in sorted(more - set(options["excluded"]))]
        return replace(found, picks=(*found.picks, *extra)) if len(found.picks) > 1 else found

    return patch.object(mmu.unit, "cover", cover)


def knows_no_turkish() -> Defect:
    return patch.object(mmu.terms, "fold_case", str.lower)


DEFECTS: dict[str, Callable[[], Defect]] = {
    "test_conf_01_lossless_storage": truncates_long_payloads,
    "test_conf_02_payload_round_trip": rewrites_messages_canonically,
    "test_conf_03_deterministic_addressing": ids_from_a_counter,
    "test_conf_04_temporal_disambiguation": oldest_state_is_called_the_latest,
    "test_conf_05_exact_verbatim_retrieval": tidies_blanks_up,
    "test_conf_06_bounded_rehydration_cap": forgets_the_cap,
    "test_conf_06_turn_budget": a_smaller_older_step_takes_the_place,
    "test_conf_07_enforced_eviction_cycle": blocks_accumulate,
    "test_conf_08_dual_projection_isolation": reading_changes_the_index,
    "test_conf_09_tamper_detection": skips_verification,
    "test_conf_10_explicit_failure_mode": gives_a_neighbour_for_a_missing_step,
    "test_conf_11_deterministic_replay": time_stands_in_the_projection,
    "test_conf_12_inconsistent_state_detection": repairs_in_silence,
    "test_conf_12_path_containment": trusts_the_path_in_the_entry,
    "test_conf_13_multi_intent": ranks_without_taking_terms_out,
    "test_conf_13_passive_mmu_unicode": knows_no_turkish,
}


def red_tests() -> Iterator[str]:
    """The names of the conformance tests that fail at the moment."""
    for name in unittest.defaultTestLoader.getTestCaseNames(conformance.IPCFSuite):
        result = unittest.TestResult()
        conformance.IPCFSuite(name).run(result)
        if not result.wasSuccessful():
            yield name


@pytest.mark.parametrize("name", DEFECTS)
def test_a_seeded_defect_turns_exactly_its_test_red(name: str) -> None:
    with DEFECTS[name]():
        assert list(red_tests()) == [name]


def test_without_a_defect_nothing_is_red() -> None:
    assert list(red_tests()) == []
    assert len(DEFECTS) == 16
