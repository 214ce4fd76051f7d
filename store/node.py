"""One archived step: its payload byte for byte, how it reads, what finds it, and its three hashes (seed section 2)."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Self

import orjson

from store.errors import IntegrityCheckError, InvalidNodeError
from store.jcs import canonical_sha256, serialized, sha256_hex

NODE_VERSION = 1
PROJECTION_VERSION = "mmu-projection-1"
MAX_STEP_ID = 10**9
PAYLOAD_KINDS = ("text", "bytes", "messages")


def is_step_id(value: object) -> bool:
    """Whether a value can name a step: an integer from 0 to 10**9 - 1 (and no bool, which Python counts as one)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_STEP_ID


def encode_text(text: str) -> bytes:
    """UTF-8 of a text. A lone surrogate, which has none, keeps its three-byte form, so nothing is lost."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(payload: bytes) -> str:
    """The inverse of `encode_text`. Raises UnicodeDecodeError for bytes that no text encodes to."""
    return payload.decode("utf-8", "surrogatepass")


def normalized(rendering: str) -> str:
    """What the projection holds of a rendering: NFC, white space at the end stripped (seed 2.2)."""
    return nfc(rendering).rstrip()


_LONG_RUN = re.compile(r"[^\w\s\x00-\x7f]{64,}+")  # no combining mark is a word character, a blank or ASCII


def nfc(text: str) -> str:
    """Normalization form C, in time linear in the text.

    The canonical ordering of a long run of combining marks is quadratic as commonly written; sorted beforehand, stably, it
    comes out the same.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", _LONG_RUN.sub(_ordered, text))


def _ordered(run: re.Match[str]) -> str:
    parts = "".join([unicodedata.normalize("NFD", character) for character in run[0]])
    marks = groupby(parts, key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(group, key=unicodedata.combining) if is_mark else group) for is_mark, group in marks)


@dataclass(frozen=True, slots=True)
class ColdNode:
    """A step as it lies in the store. Build it with `ColdNode.build`, which computes the hashes.

    `payload` is what was given, byte for byte; `rendering` how it reads; `summary` a line about it; `identifiers`, `files`,
    `commands`, `errors` what finds it (sorted); `timestamp` the time of the message, ISO 8601, empty if unknown;
    `folded_at` when it was archived; `tokens` the rendering's length in tokens of the archiving meter; `match_key` how a
    client's copy is recognised; `sanitized` what redaction took out, by kind; `cut` how many terms were left out.
    """

    session: str
    step_id: int
    payload_kind: str
    payload: bytes
    rendering: str
    summary: str = ""
    identifiers: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    folding_policy_hash: str = ""
    timestamp: str = ""
    folded_at: str = ""
    tokens: int = 0
    match_key: str = ""
    messages: int = 1
    sanitized: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    projection_version: str = PROJECTION_VERSION
    payload_sha256: str = ""
    projection_sha256: str = ""
    artifact_sha256: str = ""

    @classmethod
    def build(cls, **values: Any) -> Self:
        """A node with its three hashes computed. Takes the fields above, without the hashes.

        Raises InvalidNodeError for a step id outside 0..10**9, an unknown payload kind, or a text that is not well-formed.
        """
        draft = cls(**values)
        if not is_step_id(draft.step_id):
            raise InvalidNodeError("step_id", f"{draft.step_id!r} is not an integer from 0 to {MAX_STEP_ID - 1}")
        if draft.payload_kind not in PAYLOAD_KINDS:
            raise InvalidNodeError("payload_kind", f"{draft.payload_kind!r} is none of {', '.join(PAYLOAD_KINDS)}")
        values["payload_sha256"] = sha256_hex(draft.payload)
        values["projection_sha256"] = draft.projection_hash()
        values["artifact_sha256"] = canonical_sha256(cls(**values)._document())
        return cls(**values)

    def projection(self) -> dict[str, Any]:
        """The eight fields, and no other, that identify a step logically (seed 2.2)."""
        return {
            "projection_version": self.projection_version,
            "step_id": self.step_id,
            "normalized_content": normalized(self.rendering),
            "identifiers": sorted(self.identifiers),
            "files": sorted(self.files),
            "commands": sorted(self.commands),
            "errors": sorted(self.errors),
            "folding_policy_hash": self.folding_policy_hash,
        }

    def projection_hash(self) -> str:
        """SHA-256 of the projection's RFC 8785 bytes."""
        return sha256_hex(serialized(self.projection()))  # its values are of the node, which is checked as a whole

    def _document(self) -> dict[str, Any]:
        """The node as a JSON object, without the artifact hash, which cannot stand in what it covers (seed 2.3)."""
        document: dict[str, Any] = {"node_version": NODE_VERSION}
        for name in _PLAIN_FIELDS:
            value = getattr(self, name)
            document[name] = list(value) if isinstance(value, tuple) else value
        document["sanitized"] = dict(self.sanitized)
        try:
            text = self.payload.decode("utf-8")
        except UnicodeDecodeError:
            text = None
            document["payload_b64"] = base64.b64encode(self.payload).decode("ascii")
        else:
            document["payload"] = text
        if self.rendering != text:  # a plain text renders as itself; it is kept once
            document["rendering"] = self.rendering
        return document

    def document(self) -> dict[str, Any]:
        """The node as a JSON object of the canonical domain, the artifact hash included."""
        return {**self._document(), "artifact_sha256": self.artifact_sha256}

    def to_bytes(self) -> bytes:
        """The canonical bytes of the node file (RFC 8785)."""
        return serialized(self.document())

    @classmethod
    def from_bytes(cls, raw: bytes, step_id: int | None = None) -> Self:
        """Read a node and check everything it says about itself: form, artifact, payload and projection hash.

        `step_id` only names the step in errors. Raises IntegrityCheckError if any of them does not hold.
        """
        try:
            node = cls._parse(orjson.loads(raw))
            artifact, form, projection = canonical_sha256(node._document()), node.to_bytes(), node.projection_hash()
        except (*_UNREADABLE, InvalidNodeError) as error:
            raise IntegrityCheckError(step_id, "node", "a cold node", f"unreadable ({error})"[:80]) from error
        if artifact != node.artifact_sha256:
            raise IntegrityCheckError(step_id, "artifact_sha256", str(node.artifact_sha256), artifact)
        if form != raw:  # the same values written in another way: not our bytes
            raise IntegrityCheckError(step_id, "serialisation", "canonical", "another form")
        if (payload := sha256_hex(node.payload)) != node.payload_sha256:
            raise IntegrityCheckError(step_id, "payload_sha256", str(node.payload_sha256), payload)
        if projection != node.projection_sha256:
            raise IntegrityCheckError(step_id, "projection_sha256", str(node.projection_sha256), projection)
        return node

    @classmethod
    def _parse(cls, document: dict[str, Any]) -> Self:
        if document["node_version"] != NODE_VERSION:
            raise ValueError(f"node version {document['node_version']!r}")
        values: dict[str, Any] = {name: document[name] for name in _PLAIN_FIELDS}
        for name in _LISTS:
            values[name] = tuple(values[name])
        text = document.get("payload")
        values["payload"] = base64.b64decode(document["payload_b64"], validate=True) if text is None else text.encode()
        values["rendering"] = document.get("rendering", text)
        if not isinstance(values["rendering"], str):
            raise TypeError("no rendering")
        values["sanitized"] = document["sanitized"]
        values["artifact_sha256"] = document["artifact_sha256"]
        return cls(**values)


# What a changed node can make its reader raise; RecursionError is for nesting without end.
_UNREADABLE = (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError, binascii.Error, RecursionError)
_LISTS = ("identifiers", "files", "commands", "errors")
_PLAIN_FIELDS = tuple(
    f.name for f in fields(ColdNode) if f.name not in {"payload", "rendering", "sanitized", "artifact_sha256"}
)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What the index knows of a step without reading its node. Hydration compares the hashes with the node's."""

    step_id: int
    file: str
    summary: str
    identifiers: tuple[str, ...]
    files: tuple[str, ...]
    timestamp: str
    folded_at: str
    tokens: int
    messages: int
    size: int  # bytes of the payload
    match_key: str
    projection_version: str
    payload_sha256: str
    projection_sha256: str
    artifact_sha256: str

    @classmethod
    def of(cls, node: ColdNode, file: str) -> Self:
        """The entry of a node that lies in `file` (relative to the session folder)."""
        shared = {f.name: getattr(node, f.name) for f in fields(cls) if f.name not in {"file", "size"}}
        return cls(file=file, size=len(node.payload), **shared)

    def document(self) -> dict[str, Any]:
        """The entry as a JSON object of the canonical domain."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        """The inverse of `document`. Raises KeyError or TypeError for a record of another shape."""
        if not is_step_id(document["step_id"]):
            raise TypeError(f"step id {document['step_id']!r}")
        values = {name: document[name] for name in _ENTRY_KINDS}
        for name, kind in _ENTRY_KINDS.items():
            if type(values[name]) is not kind:
                raise TypeError(f"{name} is {type(values[name]).__name__}")
        for name in ("identifiers", "files"):
            if {type(item) for item in values[name]} - {str}:
                raise TypeError(f"{name} holds another thing than texts")
            values[name] = tuple(values[name])
        return cls(**values)


_ENTRY_KINDS = {f.name: {"str": str, "int": int}.get(str(f.type), list) for f in fields(IndexEntry)}
"""The JSON type of each field of an entry, as `IndexEntry.parse` checks it."""


def is_artifact(raw: bytes, artifact_sha256: str) -> bool:
    """Whether a node file's bytes are, each of them, those that an artifact hash was made of. One pass, nothing is parsed.

    The hash covers the canonical node without its own field; keys are sorted, so that field stands first in the file.
    """
    start = b'{"artifact_sha256":"%s",' % artifact_sha256.encode()
    return raw.startswith(start) and sha256_hex(b"{" + raw[len(start) :]) == artifact_sha256


def verified(entry: IndexEntry, raw: bytes, session: str) -> ColdNode:
    """The node that an entry of a session refers to, from its raw bytes, every hash checked against itself and the entry.

    Raises IntegrityCheckError (CONF-09); what it raises for is never hydrated.
    """
    node = ColdNode.from_bytes(raw, entry.step_id)
    if node.session != session:
        raise IntegrityCheckError(entry.step_id, "the node's session", session, node.session)
    for name in ("step_id", "artifact_sha256", "payload_sha256", "projection_sha256", "projection_version"):
        stored, found = getattr(entry, name), getattr(node, name)
        if stored != found:
            raise IntegrityCheckError(entry.step_id, f"the index's {name}", str(stored), str(found))
    return node
