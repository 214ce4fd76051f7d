"""The composition root: where paths, the system clock, the environment and the vocabulary become a harness."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.clients import LiteLLM
from harness.clock import Clock, system_clock
from harness.harness import Harness, Mode, OnFault
from harness.reader import Redact
from mmu.policy import HydrationPolicy
from mmu.tokens import Meter, open_meter
from store import ColdStore, FileStore, MemoryStore


def open_harness(
    store: str | Path | ColdStore = ".mmu",
    *,
    session: str = "default",
    policy: HydrationPolicy | Mapping[str, Any] | None = None,
    client: Any = None,
    mode: Mode = "active",
    on_fault: OnFault = "bypass",
    redact: Redact = False,
    clock: Clock | None = None,
    meter: Meter | None = None,
    key: bytes | None = None,
    anchor: str | Path | None = None,
) -> Harness:
    """Open a session of a store folder (made if it is missing), or of a store that is open already.

    `policy` may be given as plain values. With `key` the head of the store's chain cannot be made up by who has no key;
    `anchor` is a file outside the folder that is told each head: `mmu validate` then sees a folder that was put back. With
    `MMU_OFF` set in the environment the mode is `off` and nothing is written.

    Raises StoreError for a folder that is not ours, PolicyError for a field out of its range.
    """
    if not isinstance(policy, HydrationPolicy):
        policy = HydrationPolicy.of(policy or {})
    if os.environ.get("MMU_OFF", "") not in ("", "0"):
        mode, store = "off", MemoryStore(session)
    if isinstance(store, str | Path):
        store = FileStore(Path(store), session, key=key, anchor=Path(anchor) if anchor else None)
    return Harness(
        store,
        policy=policy,
        meter=meter or open_meter(),
        clock=clock or system_clock(),
        mode=mode,
        on_fault=on_fault,
        redact=redact,
        client=client or LiteLLM(),
    )
