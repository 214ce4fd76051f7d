"""Taking secrets out of what is about to be archived: keys, tokens and passwords that can be told by their own form.

Every pattern is anchored in a prefix or a name that its issuer gave it; nothing is guessed from randomness, so hashes, ids
and base64 stay. What is not found, therefore: a password in a sentence, a secret without a form of its own, one that is split
over two messages, one inside a picture or an archive. Known scanners were looked at; they read files line by line and do not
say where in a line a secret stands, and know no key that was issued since 2024.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_UNTOUCHED = frozenset(("signature", "encrypted_content", "thought_signature"))
"""Fields that their provider checks, or that hold what nobody can read."""
_SAMPLES = frozenset(("password", "passwd", "pass", "pw", "pwd", "secret", "token", "postgres", "changeme", "example"))
_PLACEHOLDER = re.compile(r"[$<{%*\[(]|x{3,}|your|\.{3}|…", re.IGNORECASE)
_KEY_MARK = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nrt])*+")
_KEY_CHARACTERS = 20_000  # no private key is longer; an end mark further away belongs to another one


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret. A text without one of `anchors` holds none. What is taken out is the last group of
    `pattern` that matched, or all it matches; no letter, digit or underscore stands before it or after it."""

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]


def _kind(name: str, anchors: str, pattern: str, flags: int = 0) -> Kind:
    # Unbounded runs are possessive, and begin where no word goes on: a text is gone through once.
    if pattern[0] != ":":
        pattern = rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9_])"
    return Kind(name, tuple(anchors.split()), re.compile(pattern, re.ASCII | flags))


_VALUE = r"""[ \t]{0,8}["']?[ \t]{0,8}[:=][ \t]{0,8}["']?"""
_ANY_CASE = re.IGNORECASE
KINDS = (
    _kind("anthropic key", "sk-ant-", r"sk-ant-[\w-]{20,}+"),
    _kind("openrouter key", "sk-or-", r"sk-or-v1-[0-9a-f]{64}"),
    _kind("openai key", "sk-", r"sk-(?:proj|svcacct|admin|None)-[\w-]{20,}+|sk-(?=[A-Za-z]{0,100}\d)[A-Za-z0-9]{32,}+"),
    _kind("groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+"),
    _kind("xai key", "xai-", r"xai-[A-Za-z0-9]{60,}+"),
    _kind("hugging face token", "hf_", r"hf_[A-Za-z0-9]{30,}+"),
    _kind("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,}+"),
    _kind("github token", "github_pat_", r"github_pat_\w{40,}+"),
    _kind(
        "gitlab token", "glpat- gldt- glft- glsoat- glrt- glptt- gloas-", r"gl(?:pat|dt|ft|soat|rt|ptt|oas)-[\w-]{20,}+"
    ),
    _kind("slack token", "xoxa- xoxb- xoxp- xoxo- xoxs- xoxr- xoxe- xapp-", r"(?:xox[abposre]|xapp)-[\w-]{15,}+"),
    _kind("slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/(?P<s>T\w{6,20}/B\w{6,20}/\w{16,})"),
    _kind("aws key", "AKIA ASIA", r"(?:AKIA|ASIA)[0-9A-Z]{16}"),
    _kind(
        "aws secret",
        "ccess accessK ACCESS ession SESSION",
        rf"(?:aws_?secret_?access_?key|secret_?access_?key|aws_?session_?token){_VALUE}(?P<s>[A-Za-z0-9/+]{{40,}}+=*+)",
        _ANY_CASE,
    ),
    _kind("google key", "AIza", r"AIza[\w-]{35}"),
    _kind("google token", "ya29.", r"ya29\.[\w-]{20,}+"),
    _kind("google secret", "GOCSPX-", r"GOCSPX-[\w-]{28}"),
    _kind(
        "azure key", "AccountKey= AccessKey=", r"(?:Account|SharedAccess|Access)Key=(?P<s>[A-Za-z0-9+/]{40,}+={0,2})"
    ),
    _kind("stripe key", "_live_ _test_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{20,}+"),
    _kind("stripe secret", "whsec_", r"whsec_[A-Za-z0-9+/]{32,}+"),
    _kind("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _kind("npm token", "_authToken=", r"_authToken=(?P<s>[\w-]{20,}+)"),
    _kind("pypi token", "pypi-AgE", r"pypi-AgE[\w-]{50,}+"),
    _kind("docker token", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,}+"),
    _kind("digitalocean token", "_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _kind("databricks token", "dapi", r"dapi[0-9a-f]{32}"),
    _kind("vault token", "hvs. hvb.", r"hv[sb]\.[\w-]{24,}+"),
    _kind("atlassian token", "ATATT3 ATCTT3", r"AT[AC]TT3[\w=-]{60,}+"),
    _kind("sendgrid key", "SG.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _kind("twilio key", "SK", r"SK[0-9a-f]{32}"),
    _kind("telegram token", ":AA", r"\d{8,10}:AA[\w-]{33}"),
    _kind("shopify token", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _kind("age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _kind("jwt", "eyJ", r"(?<!-)eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}+"),
    _kind("password in a url", "://", r"://[^\s/:@\"'<>`\\]{0,100}:(?P<s>[^\s/:@\"'<>`\\]{3,200})@"),
    _kind(
        "authorization header",
        "uthorization UTHORIZATION",
        rf"authorization{_VALUE}(?:(?:bearer|basic|token|digest|apikey)[ \t]{{1,8}}(?P<s>[A-Za-z0-9._~+/-]{{16,}}+=*+)"
        r"|(?!AWS4-)(?P<t>(?=[A-Za-z._~+/-]{0,100}\d)[A-Za-z0-9._~+/-]{16,}+=*+))",
        _ANY_CASE,
    ),
    _kind(
        "api key header", "api-key Api-Key API-K", rf"x-(?:goog-)?api-key{_VALUE}(?P<s>[\w.~+/-]{{16,}}+=*+)", _ANY_CASE
    ),
    _kind(
        "bearer token",
        "earer EARER",
        r"bearer[ \t]{1,8}(?P<s>(?=[A-Za-z._~+/-]{0,100}\d)[\w.~+/-]{20,}+=*+)",
        _ANY_CASE,
    ),
)


def redact(text: str) -> tuple[str, dict[str, int]]:
    """A text with every secret replaced by its kind (`[redacted: github token]`), and how many there were of each kind.

    The same text gives the same; what was redacted is not redacted again. Linear in the text.
    """
    found: Counter[str] = Counter()
    if "PRIVATE KEY" in text:
        text = _without_keys(text, found)
    for kind in KINDS:
        if any(anchor in text for anchor in kind.anchors):
            text = kind.pattern.sub(_replacing(kind, found), text)
    return text, dict(found)


def _replacing(kind: Kind, found: Counter[str]) -> Callable[[re.Match[str]], str]:
    def replaced(match: re.Match[str]) -> str:
        if _is_sample(match):
            return match[0]
        found[kind.name] += 1
        group = match.lastgroup or 0
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return f"{match[0][:start]}[redacted: {kind.name}]{match[0][end:]}"

    return replaced


def _is_sample(match: re.Match[str]) -> bool:
    """Whether a named value only stands for a secret: a variable, a placeholder, the password of an example."""
    if match.lastgroup is None:
        return False
    secret, user = match[match.lastgroup], match[0].removeprefix("://").partition(":")[0]
    return _PLACEHOLDER.match(secret) is not None or secret.lower() in _SAMPLES or secret == user


def _without_keys(text: str, found: Counter[str]) -> str:
    """The text without private keys; one whose end is missing goes as far as it can be one."""
    out: list[str] = []
    at = 0
    for begin in _KEY_MARK.finditer(text):
        if begin[1] == "END" or begin.start() < at:
            continue
        end, body = _KEY_MARK.search(text, begin.end()), _KEY_BODY.match(text, begin.end())
        stop = body.end() if body else begin.end()
        if end and end[1] == "END" and end.end() - begin.end() < _KEY_CHARACTERS:
            stop = end.end()
        if stop - begin.end() >= 40:  # less is the words alone, as in a message about keys
            found["private key"] += 1
            out += (text[at : begin.start()], "[redacted: private key]")
            at = stop
    return "".join([*out, text[at:]])


def redact_values(value: Any) -> tuple[Any, dict[str, int]]:
    """JSON values with the secrets in their texts replaced, and how many of each kind; the same object if there are none.

    Signatures, encrypted fields and embedded binary data stay as they are. A text that is JSON itself (the arguments of a
    tool call) is read first, so that a secret behind its escapes is found, and stays JSON.
    """
    found: Counter[str] = Counter()
    clean = _clean(value, found)
    return (clean, dict(found)) if found else (value, {})


def _clean(value: Any, found: Counter[str]) -> Any:
    if isinstance(value, str):
        return _clean_text(value, found)
    if isinstance(value, list | tuple):
        return [_clean(item, found) for item in value]
    if isinstance(value, Mapping):
        binary = value.get("type") in ("base64", "redacted_thinking", "input_audio")
        return {
            name: field if name in _UNTOUCHED or (binary and name == "data") else _clean(field, found)
            for name, field in value.items()
        }
    return value


def _clean_text(text: str, found: Counter[str]) -> str:
    if text.startswith("data:") and ";base64," in text[:200]:
        return text
    if text[:1] in ("{", "[") and "\\" in text:
        try:
            inner = orjson.loads(text)
        except orjson.JSONDecodeError:
            inner = None
        inside: Counter[str] = Counter()
        clean = _clean(inner, inside)
        if inside:
            found += inside
            return orjson.dumps(clean).decode()
    clean_text, counts = redact(text)
    found.update(counts)
    return clean_text


def findings(text: str) -> Iterator[tuple[str, str]]:
    """Each secret in a text, by its kind and its first letters, for a person who looks through a file."""
    counts: Counter[str] = Counter()
    text = _without_keys(text, counts)
    yield from (("private key", "-----B…"),) * counts["private key"]
    for kind in KINDS:
        if any(anchor in text for anchor in kind.anchors):
            for match in kind.pattern.finditer(text):
                if not _is_sample(match):
                    yield kind.name, match[match.lastgroup or 0][:6] + "…"
