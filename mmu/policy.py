"""Every tunable number, in one place. A policy is a frozen value of integers and strings; its hash is in each projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mmu.errors import PolicyError
from store import canonical_sha256

Tokens = Annotated[int, Field(ge=0, le=10**9, strict=True)]


class HydrationPolicy(BaseModel):
    """What may be in a prompt: when steps leave it, and how much comes back for one turn. All sizes are in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Literal["ipcf"] = "ipcf"
    """How `scan` weighs terms. `ipcf`: every term counts one, whole steps (IPCF-1.1)."""

    lambda_permille: Annotated[int, Field(ge=0, le=999, strict=True)] = 0
    """What remains of a term's weight once a pick has answered it, in thousandths. 0: it is answered for good."""

    max_rehydration_tokens_per_call: Tokens = 3000
    """The most that one step may bring back; the rest is cut with a notice (CONF-06)."""

    max_rehydration_tokens_per_turn: Tokens = 3500
    """The most that all steps of one turn may bring back (CONF-06)."""

    high_water_tokens: Tokens = 45_000
    """A prompt above this is folded at the next turn boundary."""

    low_water_tokens: Tokens = 12_000
    """Folding goes on until the prompt is at or below this. A ratio near 4 was the cheapest in simulation."""

    keep_tokens: Tokens = 8_000
    """Inside a long turn, the newest exchanges up to this size keep their results (at least two)."""

    cache_ttl_seconds: Annotated[int, Field(ge=0, le=10**6, strict=True)] = 300
    """How long a provider keeps a cached prefix. After a longer pause it is cold, and folding costs nothing."""

    hot_line_tokens: Tokens = 2_000
    """Budget of all hot lines together; over it, the oldest are merged into one line."""

    hot_line_characters: Annotated[int, Field(ge=40, le=280, strict=True)] = 280
    """The longest hot line."""

    terms_per_step: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 4096
    """The most terms one step is found by, so that a blob cannot flood the index."""

    @model_validator(mode="after")
    def _marks_in_order(self) -> Self:
        if self.low_water_tokens > self.high_water_tokens:
            raise ValueError(
                f"low_water_tokens {self.low_water_tokens} is above high_water_tokens {self.high_water_tokens}"
            )
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A policy from plain values. Raises PolicyError that names the field and its range."""
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "policy"
            reason = first["msg"].removeprefix("Value error, ")
            raise PolicyError(f"{field}: {reason} (given: {first['input']!r:.60})") from error

    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of all fields (seed 2.2, `folding_policy_hash`)."""
        return canonical_sha256(self.model_dump())
