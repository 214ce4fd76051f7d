"""What the dialects share: how a message is recognised, pictures and files, and which words are the user's own."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from harness.history import compact
from mmu.envelope import strip
from mmu.step import Call, Media, Opaque, Part, Result, Text
from mmu.tokens import image_size, image_tokens

MESSAGE_TOKENS = 4  # what the frame of a message, or of a call, costs

_TAGS = (
    "system-reminder|environment_context|user_instructions|command-name|command-message|command-args"
    "|local-command-stdout|local-command-stderr|local-command-caveat|ide_opened_file|ide_selection|user-prompt-submit-hook"
    "|permissions instructions|skills_instructions|turn_aborted|task-notification"
)
_HARNESS = re.compile(rf"<({_TAGS})>.*?</\1>", re.DOTALL)


def own_words(texts: Iterable[str]) -> str:
    """What a user said, without what known harnesses put into a message (reminders, environment, command output)."""
    joined = "\n".join(texts)
    return (_HARNESS.sub("", joined) if "</" in joined else joined).strip()


def match_key(kind: str, parts: Iterable[Part]) -> bytes:
    """What a message is recognised by. A string equals one text block; cache marks, thinking and ids do not count.

    Empty texts do not count either: clients drop and add them.
    """
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        match part:
            case Text(_, text) | Result(text):
                if not text:
                    continue
                fields: tuple[str, ...] = ("text", text)
            case Call(name, arguments):
                fields = ("call", name, _one_spelling(arguments))
            case Media():
                fields = ("media", part.sha256)
            case Opaque(name, text):
                fields = ("opaque", name, text)
            case _:
                continue
        for field in fields:
            data = field.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
    return digest.digest()


def _one_spelling(arguments: str) -> str:
    """Arguments in one spelling: clients write the same JSON with other blanks."""
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, TypeError):
        return arguments


def without_envelopes(body: Mapping[str, Any], session: str) -> tuple[Mapping[str, Any], int]:
    """A message without what we had put into it, and how many envelopes that were. Its content may become empty."""
    content = body.get("content")
    if isinstance(content, str):
        text, count = strip(content, session)
        return ({**body, "content": text}, count) if count else (body, 0)
    if not isinstance(content, list):
        return body, 0
    kept, removed = [], 0
    for part in content:
        words = part.get("text") if isinstance(part, Mapping) else None
        rest, count = strip(words, session) if isinstance(words, str) else ("", 0)
        removed += count
        if not count:
            kept.append(part)
        elif rest:
            kept.append({**part, "text": rest})
    return ({**body, "content": kept}, removed) if removed else (body, 0)


def media(kind: str, source: str, media_type: str = "", *, encoded: bool = False, detail: str | None = None) -> Media:
    """A picture, sound or file from a data URI, from base64 text (`encoded`), or as a reference.

    Broken base64 counts as a reference.
    """
    head, comma, rest = source.partition(",")
    if head.startswith("data:") and comma:
        media_type, source, encoded = head[5:].partition(";")[0] or media_type, rest, True
    try:
        data = base64.b64decode(source, validate=True) if encoded else b""
    except (binascii.Error, ValueError):
        data = b""
    digest = hashlib.sha256(data or source.encode("utf-8", "surrogatepass")).hexdigest()
    if kind == "image":
        width, height = (image_size(data) if data else None) or (None, None)
        tokens = image_tokens(width, height, detail)
    else:
        tokens = len(data) // 1000 if kind == "audio" else len(data) // 60
    return Media(kind, media_type or f"{kind}/unknown", len(data), digest, tokens)


def as_text(value: Any) -> str:
    """A value as text: a text as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else compact(value).decode()
