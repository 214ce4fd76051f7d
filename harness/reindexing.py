"""Reading archived steps anew after the rules for their terms changed: same payload, new projection (ipcf.md 3)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from harness.dialects import detect, make
from harness.reader import Reader
from mmu.step import Part
from mmu.unit import MMU
from store import ColdNode, Progress

_BATCH = 256  # steps that are written with one flush


def reindex(mmu: MMU, progress: Progress | None = None) -> tuple[int, ...]:
    """Give every step of a store, whose terms come out differently now, a new entry; gives their ids.

    Raises StoreError for a step that does not verify: nothing is made of it.
    """
    changed: list[int] = []
    batch: list[ColdNode] = []
    steps = sorted(mmu.store.entries)
    for number, step_id in enumerate(steps, 1):
        node = mmu.store.get(step_id)
        again = mmu.reprojected(node, parts_of(node, mmu))
        if again.projection_sha256 != node.projection_sha256:
            batch.append(again)
            changed.append(step_id)
        if batch and (len(batch) >= _BATCH or number == len(steps)):
            mmu.reindex(batch)
            batch.clear()
        if progress is not None:
            progress(number, len(steps))
    return tuple(changed)


def parts_of(node: ColdNode, mmu: MMU) -> Sequence[Part]:
    """The parts of an archived step, read from its payload; none for a text that was folded by hand."""
    if node.payload_kind != "messages":
        return ()
    messages = orjson.loads(node.payload)
    reader = Reader(make(detect(messages, "openai-chat"), node.session, mmu.meter))
    return [part for message in reader.read(messages).messages for part in message.parts]
