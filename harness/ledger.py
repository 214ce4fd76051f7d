"""The list of receipts, in `ledger.jsonl`. Each line carries its own hash and the one before: a changed one shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from harness.document import read
from harness.receipt import Receipt
from store import ColdStore, sha256_hex

LEDGER_FILE = "ledger.jsonl"
_FIRST = "0" * 64
_VERSION = 1
_OWN = -len(',"sha256":""}') - 64  # where a line's own hash begins


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
        self._store.append_document(LEDGER_FILE, lambda last: _line(receipt, last))

    def rewrite(self, change: Callable[[Receipt], Receipt]) -> None:
        """Book every receipt anew as `change` gives it, if it changes one. Lines that do not read are left out then.

        Raises StoreWriteError or StoreLockedError.
        """

        def rewritten(raw: bytes) -> bytes:
            receipts = _read(raw)[0]
            changed = [change(receipt) for receipt in receipts]
            if changed == receipts:
                return raw
            lines: list[bytes] = []
            for receipt in changed:
                lines.append(_line(receipt, lines[-1] if lines else b""))
            return b"".join(line + b"\n" for line in lines)

        self._store.change_document(LEDGER_FILE, rewritten)

    def read(self) -> tuple[tuple[Receipt, ...], tuple[LedgerFault, ...]]:
        """Every receipt that reads, in order, and what is wrong with the others."""
        receipts, faults = _read(self._store.read_document(LEDGER_FILE) or b"")
        return tuple(receipts), tuple(faults)


def _line(receipt: Receipt, last: bytes) -> bytes:
    """A line for a receipt behind another: with that one's hash, and its own over what stands before it."""
    body = orjson.dumps({"version": _VERSION, "prev": sha256_hex(last) if last else _FIRST, "receipt": receipt})
    return body[:-1] + b',"sha256":"%s"}' % sha256_hex(body).encode()


def _read(raw: bytes) -> tuple[list[Receipt], list[LedgerFault]]:
    receipts: list[Receipt] = []
    faults: list[LedgerFault] = []
    previous: str | None = _FIRST
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line:
            continue
        try:
            body = orjson.loads(line)
            if body["version"] != _VERSION:
                raise ValueError(f"version {body['version']}, this program reads {_VERSION}")
            receipts.append(read(Receipt, body["receipt"], "receipt"))
            own = sha256_hex(line[:_OWN] + b"}")
            if body["sha256"] != own or not line.endswith(b'"%s"}' % own.encode()):
                raise ValueError("its hash does not hold")
            if previous not in (None, body["prev"]):
                faults.append(LedgerFault(number, "does not follow the line before"))
            previous = sha256_hex(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            faults.append(LedgerFault(number, f"changed or unreadable ({error})"))
            previous = None  # nobody can tell what followed the line as it was
    return receipts, faults
