"""The list of receipts, in `ledger.jsonl`: each line carries the hash of the line before, so a changed line shows."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from harness.document import read
from harness.receipt import Receipt
from store import ColdStore, sha256_hex

LEDGER_FILE = "ledger.jsonl"
_FIRST = "0" * 64


@dataclass(frozen=True, slots=True)
class LedgerFault:
    """A line that is damaged, or does not follow the line before."""

    line: int
    reason: str


class Ledger:
    """Receipts of one session, appended one line each."""

    def __init__(self, store: ColdStore) -> None:
        self._store = store

    def append(self, receipt: Receipt) -> None:
        """Book a receipt. Raises StoreWriteError or StoreLockedError; then it is not booked."""

        def line_after(last: bytes) -> bytes:
            return orjson.dumps({"prev": sha256_hex(last) if last else _FIRST, "receipt": receipt})

        self._store.append_document(LEDGER_FILE, line_after)

    def read(self) -> tuple[tuple[Receipt, ...], tuple[LedgerFault, ...]]:
        """Every receipt that reads, in order, and what is wrong with the others."""
        receipts: list[Receipt] = []
        faults: list[LedgerFault] = []
        previous = _FIRST
        for number, line in enumerate((self._store.read_document(LEDGER_FILE) or b"").split(b"\n"), 1):
            if not line:
                continue
            try:
                body = orjson.loads(line)
                receipts.append(read(Receipt, body["receipt"], "receipt"))
                if body["prev"] != previous:
                    faults.append(LedgerFault(number, "does not follow the line before"))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                faults.append(LedgerFault(number, f"unreadable ({error})"))
            previous = sha256_hex(line)
        return tuple(receipts), tuple(faults)
