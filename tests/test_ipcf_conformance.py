"""The official conformance tests of IPCF-1.1: `python -m unittest tests/test_ipcf_conformance.py`, or pytest."""

from __future__ import annotations

import unittest

from harness import conformance


class TestIPCFConformance(conformance.IPCFSuite):
    """The 16 tests of the suite's section 5, as `mmu conformance` runs them."""


class TestIPCFConformanceRedacted(conformance.RedactedSuite):
    """The same with secrets taken out before archiving."""


if __name__ == "__main__":
    unittest.main()
