"""Every tunable number, in one place. A policy is a frozen value of integers and strings; its hash is in each projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from mmu.errors import PolicyError
from store import canonical_sha256

PROFILES = ("ipcf",)
_MOST = 10**9
_RANGES = {
    "lambda_permille": (0, 999),
    "cache_ttl_seconds": (0, 10**6),
    "hot_line_characters": (40, 280),
    "terms_per_step": (1, 100_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HydrationPolicy:
    """What may be in a prompt: when steps leave it, and how much comes back for one turn. All sizes are in tokens.

    Raises PolicyError that names the field and its range.
    """

    profile: str = "ipcf"
    """How `scan` weighs terms. `ipcf`: every term counts one, whole steps (IPCF-1.1)."""

    lambda_permille: int = 0
    """What remains of a term's weight once a pick has answered it, in thousandths. 0: it is answered for good."""

    max_rehydration_tokens_per_call: int = 3000
    """The most that one step may bring back; the rest is cut with a notice (CONF-06)."""

    max_rehydration_tokens_per_turn: int = 3500
    """The most that all steps of one turn may bring back (CONF-06)."""

    high_water_tokens: int = 45_000
    """A prompt above this is folded."""

    low_water_tokens: int = 12_000
    """Folding goes on until the prompt is at or below this. A ratio near 4 was the cheapest in simulation."""

    keep_tokens: int = 8_000
    """Inside a long turn, the newest exchanges up to this size keep their results (at least two)."""

    cache_ttl_seconds: int = 300
    """How long a provider keeps a cached prefix. After a longer pause it is cold, and folding costs nothing."""

    hot_line_tokens: int = 2_000
    """Budget of all hot lines together; over it, the oldest are merged into one line."""

    hot_line_characters: int = 280
    """The longest hot line."""

    terms_per_step: int = 4096
    """The most terms one step is found by, so that a blob cannot flood the index."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "profile":
                if value not in PROFILES:
                    raise PolicyError(f"profile: one of {', '.join(PROFILES)} was expected (given: {value!r:.60})")
                continue
            least, most = _RANGES.get(field.name, (0, _MOST))
            if type(value) is not int or not least <= value <= most:
                raise PolicyError(
                    f"{field.name}: an integer from {least} to {most} was expected (given: {value!r:.60})"
                )
        if self.low_water_tokens > self.high_water_tokens:
            low, high = self.low_water_tokens, self.high_water_tokens
            raise PolicyError(f"low_water_tokens: {low} is above high_water_tokens {high}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A policy from plain values. Raises PolicyError, also for a field that does not exist."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise PolicyError(f"{unknown[0]}: the policy has no such field; it has {', '.join(sorted(known))}")
        return cls(**values)

    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of all fields (seed 2.2, `folding_policy_hash`)."""
        return canonical_sha256(asdict(self))
