"""The one tree of errors of this package. What the store finds broken flies on as a StoreError."""

from __future__ import annotations


class MMUError(Exception):
    """Anything the memory management unit refuses to do."""


class PolicyError(MMUError):
    """A policy with a field that does not exist or a value out of its range."""


class DamagedSegmentError(MMUError):
    """A part of the index no longer holds what was written. The index is derived: it is built anew from the store."""

    def __init__(self, section: str, what: str) -> None:
        self.section = section
        super().__init__(f"index segment, {section}: {what}; delete the file, it is built anew from the store")
