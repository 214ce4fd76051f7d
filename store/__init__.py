"""Verified bytes on disk: nodes, their three hashes, the log, the audit.

with FileStore(Path(".mmu"), "session") as store:
    store.archive([node])
    node = store.get(137)          # every hash is checked on the way
"""

from store.chain import Head
from store.chance import Chance, fixed_chance, system_chance
from store.cold_store import Audit, ColdStore, Progress, Recovery, Version
from store.errors import (
    BrokenReferenceError,
    IntegrityCheckError,
    InvalidNodeError,
    NodeConflictError,
    NodeNotFoundError,
    OrphanedNodeError,
    PathContainmentError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreReadError,
    StoreWriteError,
)
from store.file_store import FileStore
from store.forgotten import Forgotten
from store.jcs import canonical, canonical_sha256, sha256_hex
from store.layout import session_folder
from store.memory_store import MemoryStore
from store.node import (
    PROJECTION_VERSION,
    ColdNode,
    IndexEntry,
    decode_text,
    encode_text,
    nfc,
)
from store.redact import findings, redact, redact_values
from store.repair import Action, plan, repair

__version__ = "0.1.0"

__all__ = [
    "PROJECTION_VERSION",
    "Action",
    "Audit",
    "BrokenReferenceError",
    "Chance",
    "ColdNode",
    "ColdStore",
    "FileStore",
    "Forgotten",
    "Head",
    "IndexEntry",
    "IntegrityCheckError",
    "InvalidNodeError",
    "MemoryStore",
    "NodeConflictError",
    "NodeNotFoundError",
    "OrphanedNodeError",
    "PathContainmentError",
    "Progress",
    "Recovery",
    "StoreError",
    "StoreFormatError",
    "StoreLockedError",
    "StoreReadError",
    "StoreWriteError",
    "Version",
    "canonical",
    "canonical_sha256",
    "decode_text",
    "encode_text",
    "findings",
    "fixed_chance",
    "nfc",
    "plan",
    "redact",
    "redact_values",
    "repair",
    "session_folder",
    "sha256_hex",
    "system_chance",
]
