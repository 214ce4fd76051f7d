"""The one tree of errors of this package. What the store finds broken flies on as a StoreError."""

from __future__ import annotations


class MMUError(Exception):
    """Anything the memory management unit refuses to do."""


class PolicyError(MMUError):
    """A policy with a field that does not exist or a value out of its range."""
