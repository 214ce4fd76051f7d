"""The envelope around what we put into a prompt: content cannot forge its end, and we know it when it comes back.

The tag is the hash of what the envelope encloses, so nothing inside can hold its own end mark, and the same content gives
the same bytes.
"""

from __future__ import annotations

import re

from store import sha256_hex

_TAG = 16
_GAP = "\n\n"
_OPEN = re.compile(r"<(archived-steps|folded-steps) ([0-9a-f]{16})>\n")


def seal(name: str, body: str, session: str) -> str:
    """The body in an envelope of that name (`archived-steps` or `folded-steps`) of a session."""
    tag = _tag(body, session)
    return f"<{name} {tag}>\n{body}\n</{name} {tag}>"


def _tag(body: str, session: str) -> str:
    return sha256_hex(f"{session}\n{body}".encode("utf-8", "surrogatepass"))[:_TAG]


def place(sealed: str, text: str) -> str:
    """A message's text with an envelope before it."""
    return f"{sealed}{_GAP}{text}"


def strip(text: str, session: str) -> tuple[str, int]:
    """The text without the envelopes of this session at its front, where `place` puts them, and how many there were.

    Only an envelope whose tag is the hash of what it encloses is ours; text that merely looks like one stays.
    """
    removed = 0
    while start := _OPEN.match(text):
        end_mark = f"\n</{start[1]} {start[2]}>"
        end = text.find(end_mark, start.end())
        if end < 0 or _tag(text[start.end() : end], session) != start[2]:
            break
        text = text[end + len(end_mark) :].removeprefix(_GAP)
        removed += 1
    return text, removed
