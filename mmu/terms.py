"""What a step is found by: the words, paths, commands and error names of its text (ipcf.md 4, profile `ipcf`).

Everything here is a pure function of the text: no locale, no hash order, no clock. What a letter is and how it is lowered
comes from Python's Unicode table, so characters assigned after Unicode 14 (Python 3.11) may read differently elsewhere.

Every scan is linear in the text. Each pattern starts only where a run starts (a look-behind says so), consumes it with
possessive quantifiers and never gives back, so no input can make it look at a character more than a fixed number of times.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import chain

from mmu.step import well_formed
from store import nfc

STOP_WORDS_SHA256 = {
    "en": "d95ed4a12e1a7509a1a793049c2fa69396f9452db7039cf021b1636844babacd",
    "tr": "c21680a260d53a1a575ac46a389a6f597be9f626947dcd1275cdfd6d1fcc4fb6",
}
"""The stop words are part of the projection: other words are another projection, so the files are pinned."""

MAX_WORD = 80
"""Characters. What is longer is data, not a word somebody asks for."""

MAX_PATH = 240
MAX_COMMAND = 200
MAX_FILES = 512
MAX_COMMANDS = 256
MAX_ERRORS = 128

CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufad9"
    "\uff66-\uff9f\uffa1-\uffdc\U00020000-\U0002fa1f\U00030000-\U0003134f"
)
"""Letters of Han, Kana, Bopomofo and Hangul as a character class: a word ends where they meet another script."""

_WORD = re.compile(rf"[^\W\d{CJK}][^\W{CJK}]{{2,}}+|[{CJK}]++(?:_[{CJK}]++)*+|\d{{3,}}+")
_RUN = re.compile(r"\w+")
_CJK_LETTER = re.compile(f"[{CJK}]")

# Base64 and hex as one long run, or as full lines of it (also with the line end written as \n inside a string); data URIs.
# A rule of dashes or equals signs is no blob.
_B64 = r"[A-Za-z0-9+/=_-]"
_BLOB = re.compile(
    r"(?i:data):[a-z]{1,24}/[^\s\"'()<>]*+"
    rf"|(?<!{_B64})(?![-=_+/]{{16}})(?:{_B64}{{120,}}+|{_B64}{{60,}}+(?:(?:\r?\n|\\n){_B64}{{60,}}+)++)"
)

# Reordering combining marks costs the square of their number; UAX 15 (stream-safe text) allows 30 in a row.
_MARKS = re.compile(r"[^\w\s\x00-\x7f]{31,}+")
_MAX_MARKS = 30

_COMMAND = re.compile(r"^\$ ++(\S.*+)$", re.MULTILINE)

_DRIVE_PATH = r"(?<!\w)[A-Za-z]:[\\/][\w.~@+\\/-]++"
_OTHER_PATH = r"(?<![\w./~@+<-])[\w~@+-]*+[./][\w.~@+/-]*+"  # not behind "<": that is a closing tag
_PATH = re.compile(f"{_DRIVE_PATH}|{_OTHER_PATH}")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SED = re.compile(r"[sy]/.*/[a-z]*")
_SUFFIX = re.compile(r".*[^.].*\.([A-Za-z][A-Za-z0-9]{0,9})")  # of names of at most MAX_PATH characters


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# A dotted name in a sentence is a file only if the suffix is one of these: `os.path` and `self.name` are code.
_FILE_SUFFIXES = _set("""
astro avif bash bat bib bin bmp bz2 c cc cfg cjs class cmake conf cpp cs css csv cxx dart db deb diff dll doc docx ejs
el elm env erl ex exe exs feature fish gemspec gif go gql gradle graphql groovy gz h hbs heic hpp hs htm html ico ini
ipynb jar java jpeg jpg js json json5 jsonl jsx kt kts less lock log lua m4a md mdx mjs mk ml mov mp3 mp4 mts ndjson
nix npy odt orig parquet patch pdf pem php pickle pkl pl plist png podspec ppt pptx prisma properties proto ps1 psd py
pyc pyi pyx r rar rb rlib rpm rs rst sass sbt scala scss sh sln so sol sql sqlite sqlite3 srt styl svelte svg swift
tar tex tf tfvars tgz tif tiff toml ts tsv tsx ttf txt vim vue wasm wav webm webp whl woff woff2 xhtml xls xlsx xml
xsd xsl xz yaml yml zig zip zsh zst
""")
_BARE_NAMES = _set("""
Brewfile CMakeLists Caddyfile Containerfile Dockerfile Gemfile Jenkinsfile Justfile LICENSE Makefile Pipfile Podfile
Procfile README Rakefile Vagrantfile .bash_profile .bashrc .dockerignore .editorconfig .env .eslintrc .gitattributes
.gitignore .gitmodules .htaccess .npmrc .nvmrc .prettierrc .profile .vimrc .zshrc
""")

_ERROR_NAME = re.compile(
    r"(?<![\w.])[^\W\d]\w*+(?:\.\w++)*+"
    r"(?:(?<=Error)|(?<=Exception)|(?<=Warning)|(?<=Fault)|(?<=Interrupt))"
    r"|(?<![\w.])(?:SIG[A-Z]{3,6}+|E[A-Z0-9]{3,15}+)(?!\w)"
)
_NO_NAMES = frozenset({"Error", "Exception", "Warning", "Fault", "Interrupt"})
_ERRNO = _set("""
E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAGAIN EALREADY EBADF EBUSY ECANCELED ECHILD ECONNABORTED ECONNREFUSED
ECONNRESET EDEADLK EDESTADDRREQ EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EINPROGRESS EINTR EINVAL EIO EISCONN
EISDIR ELOOP EMFILE EMLINK EMSGSIZE ENAMETOOLONG ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS ENODEV ENOENT ENOEXEC
ENOLCK ENOMEM ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENOTSOCK ENOTSUP EOPNOTSUPP EPERM EPIPE EPROTO ERANGE EROFS
ESPIPE ESRCH ESTALE ETIMEDOUT EWOULDBLOCK EXDEV
""")

_STEP = re.compile(r"(?<![\w-])(?:step|adim)(?:[ \t]{1,3}#?|#)([0-9]{1,9})(?![\w]|[.,][0-9])")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a step is found by (ipcf.md 4; the projection's four lists). Each list is distinct and sorted by code point.

    `identifiers` are folded (`fold_case`); the other lists are as written, in NFC. `cut` counts what the bounds kept out of
    `identifiers`: distinct terms beyond the limits, distinct words of more than 80 characters, and blobs, one each.
    """

    identifiers: tuple[str, ...]
    files: tuple[str, ...]
    commands: tuple[str, ...]
    errors: tuple[str, ...]
    cut: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one text gives, each list distinct and in order of first appearance."""

    words: list[str]
    errors: list[str]
    paths: list[str]
    left_out: int


def extract(summary: str, rendering: str, limit: int = 4096) -> Terms:
    """The terms of a step, at most `limit` identifiers (seed 2.2, ipcf.md 4).

    Under the limit they are taken in this order: words of the summary, names of errors, paths, words of the rendering, each
    by first appearance. Base64, hex and data URIs are left out as wholes. No text raises, also not lone surrogates and NUL.
    """
    texts = [compose(summary), compose(rendering)]
    about, content = _read(texts[0]), _read(texts[1])
    commands = _distinct(chain.from_iterable(map(_commands, texts)))
    errors = _distinct(about.errors + content.errors)
    paths = _distinct(about.paths + content.paths)
    names = [fold_case(name) for name in errors[:MAX_ERRORS] + paths[:MAX_FILES]]
    found = _distinct(chain(about.words, names, content.words))
    kept = found[:limit]
    unnamed = len(errors[MAX_ERRORS:]) + len(paths[MAX_FILES:])
    return Terms(
        identifiers=tuple(sorted(kept)),
        files=tuple(sorted(paths[:MAX_FILES])),
        commands=tuple(sorted(commands[:MAX_COMMANDS])),
        errors=tuple(sorted(errors[:MAX_ERRORS])),
        cut=len(found) - len(kept) + unnamed + about.left_out + content.left_out,
    )


def prompt_terms(text: str) -> frozenset[str]:
    """The terms of a prompt or query: read as in `extract`, so that the two can be compared, and not limited in number."""
    reading = _read(compose(text))
    return frozenset(chain(reading.words, map(fold_case, reading.errors), map(fold_case, reading.paths)))


def named_steps(text: str) -> tuple[int, ...]:
    """The steps a prompt names ("step 137", "Step #137", "adım 137"), distinct, in order of mention (ipcf.md 6).

    The word stands right before the number: a list ("steps 3 and 4"), an ordinal and a decimal number name no step.
    """
    return tuple(dict.fromkeys(int(match[1]) for match in _STEP.finditer(fold_case(text))))


def fold_case(text: str) -> str:
    """The form in which terms are compared: NFC, lower case, `ı` as `i`, no combining dot, NFC again (ipcf.md 4).

    "İnş" and "inş", "Işık" and "ışık" come out equal.
    """
    if text.isascii():
        return text.lower()
    lowered = compose(text).lower().replace("ı", "i").replace("\u0307", "")
    return nfc(lowered)


def compose(text: str) -> str:
    """The text in NFC and well formed: U+FFFD for a lone surrogate, at most 30 combining marks in a row."""
    return text if text.isascii() else nfc(_MARKS.sub(_thin, well_formed(text)))


def path_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each file or folder named in the text, in order.

    A path is rooted (`/x`, `./x`, `~/x`, `C:\\x`), or has a suffix, or has three parts, or ends with a slash; a bare name
    counts if its suffix is a known one. URLs, fractions, dates, calls (`console.log(`) and closing tags are none. A path
    holds no blank, no CJK letter (there a sentence goes on without a blank) and at most 240 characters.
    """
    for match in _PATH.finditer(_without_cjk(text)):
        if match.end() - match.start() > MAX_PATH:
            continue
        written = match[0].rstrip(".-+@~")
        path = written.lstrip("-+")
        called = text[match.end() : match.end() + 1] == "("
        if _is_path(path, called):
            end = match.start() + len(written)
            yield end - len(path), end


@cache
def stop_words() -> frozenset[str]:
    """The folded English and Turkish function words that are no terms. Read once."""
    folder = resources.files("mmu") / "stopwords"
    texts = ((folder / f"{language}.txt").read_text(encoding="utf-8") for language in STOP_WORDS_SHA256)
    return frozenset(fold_case(word) for text in texts for word in text.split())


def _read(text: str) -> _Reading:
    unblobbed, blobs = _BLOB.subn(" ", text)
    # What stands between blanks is read once: a log repeats itself, and no pattern below looks past a blank.
    readable = "\n".join(_distinct(unblobbed.split()))
    runs = _distinct(_RUN.findall(fold_case(readable)))
    words = _distinct(chain.from_iterable(map(_WORD.findall, runs)))
    short = [word for word in words if len(word) <= MAX_WORD]
    return _Reading(
        words=[word for word in short if _is_term(word)],
        errors=_distinct(_errors(readable)),
        paths=_distinct(readable[start:end] for start, end in path_spans(readable)),
        left_out=len(words) - len(short) + blobs,
    )


def _is_term(word: str) -> bool:
    return len(word) >= 3 and word not in stop_words() and word.strip("_") != ""


def _commands(text: str) -> Iterator[str]:
    return (match[1][:MAX_COMMAND].rstrip() for match in _COMMAND.finditer(text))


def _errors(text: str) -> Iterator[str]:
    """Names of errors as written, and after a dotted name its last part."""
    for match in _ERROR_NAME.finditer(_without_cjk(text)):
        name = match[0]
        last = name.rpartition(".")[2]
        if len(name) <= MAX_WORD and _is_error(last):
            yield name
            if last != name:
                yield last


def _is_error(name: str) -> bool:
    if name.isupper():
        return name.startswith("SIG") or name in _ERRNO
    return name not in _NO_NAMES and name.lstrip("_")[:1].isupper()  # a lower-case start is a variable: `lastError`


@lru_cache(maxsize=4096)
def _is_path(path: str, called: bool) -> bool:
    if _DRIVE.match(path):
        return any(map(str.isalnum, path[3:]))
    parts = [part for part in path.split("/") if part not in {"", ".", "..", "~"}]
    if (
        "//" in path
        or not parts
        or any(_is_bare(part) for part in parts)
        or "".join(parts).isdigit()
        or _SED.fullmatch(path)
    ):
        return False
    if "/" not in path:
        return not called and _is_file_name(path)
    if len(parts) == 1 and len(parts[0]) < 3:
        return False  # "/s", "n/": a unit, a flag
    rooted = path.startswith(("/", "./", "../", "~/"))
    return (
        rooted
        or path.endswith("/")
        or len(parts) > 2
        or parts[-1] in _BARE_NAMES
        or _SUFFIX.fullmatch(parts[-1]) is not None
    )


def _is_bare(part: str) -> bool:
    return not any(map(str.isalnum, part))


def _is_file_name(name: str) -> bool:
    suffix = _SUFFIX.fullmatch(name)
    return name in _BARE_NAMES or (suffix is not None and suffix[1].lower() in _FILE_SUFFIXES)


def _without_cjk(text: str) -> str:
    """The text with a blank for each CJK letter, so that places stay the same."""
    return text if text.isascii() else _CJK_LETTER.sub(" ", text)


def _thin(run: re.Match[str]) -> str:
    classes = list(map(unicodedata.combining, run[0]))
    if not any(classes):
        return run[0]
    kept, marks = [], 0
    for character, combining in zip(run[0], classes, strict=True):
        marks = marks + 1 if combining else 0
        if marks <= _MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
