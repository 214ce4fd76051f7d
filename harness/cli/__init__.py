"""The command `mmu`. Commands parse, make one call, and print; a rule found here belongs further down."""

from harness.cli.app import main

__all__ = ["main"]
