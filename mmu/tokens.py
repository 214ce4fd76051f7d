"""How many tokens a text or a picture costs. Offline, never raising, one encoder per process.

Numbers come from tiktoken with the vocabulary that litellm's wheel brings along (litellm itself is not imported: that takes
seconds). Without a vocabulary an estimate takes its place and says why. No count of ours is a provider's bill: that one
knows its own framing, and for other vendors its own vocabulary.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from mmu.step import well_formed

if TYPE_CHECKING:
    import tiktoken

_CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"
_O200K = (
    "fb374d419588a4632f3f557e76b4b70aebbca790",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
)
_CL100K = (
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
)
_P50K = ("ec7223a39ce59f226a68acc30dc1af2788490e15", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069")
VOCABULARIES = {
    "cl100k_base": _CL100K,
    "o200k_base": _O200K,
    "o200k_harmony": _O200K,
    "p50k_base": _P50K,
    "p50k_edit": _P50K,
}
"""For each encoding tiktoken's cache file name and the SHA-256 it expects of that file."""

# A piece ends behind the first line end from 3,000 characters on, else before the first blank from 3,500 on, else at 4,000.
# Each choice looks only at what stands before the cut, so a text and its prefixes are cut at the same places.
_LINE_FROM, _BLANK_FROM, _PIECE = 3000, 3500, 4000
_BLANK = re.compile(r"\s")

_CACHED_CHARACTERS = 8_000_000
_ENTRY = 64  # characters: what an entry costs besides its text, so that many short texts are bounded too

_UNBROKEN = re.compile(r"[A-Za-z0-9+/=_-]{64,}+")
_UNITS = 4  # units in a token; every character costs one, and of these classes so many more
_DEARER = (
    (re.compile(r"[0-9!-/:-@\[-`{-~\x80-\u2e7f]+"), 1),
    (re.compile(r"[\u2e80-\uffff]+"), 3),
    (re.compile(r"[\U00010000-\U0010ffff]+"), 7),
)

_TILE, _FIT, _SHORT_SIDE = 512, 2048, 768
_PICTURE, _PER_TILE = 85, 170
_JOINER = "\u200d"
_MAX_CLUSTER = 32


class Meter(Protocol):
    """Counts tokens and cuts by tokens. Never raises, whatever the text holds."""

    @property
    def name(self) -> str:
        """The encoding's name, or "estimate"."""

    def count(self, text: str) -> int:
        """The tokens of `text`; names of special tokens in it count as plain text."""

    def head(self, text: str, limit: int) -> str:
        """The longest prefix made of whole tokens with `count(prefix) <= limit`; no cut inside a character."""


def open_meter(encoding: str = "o200k_base") -> Meter:
    """A meter for `encoding`: tiktoken's if its vocabulary is at hand and intact, else an `EstimateMeter` with the reason.

    Nothing is downloaded. `TIKTOKEN_CACHE_DIR` is respected if set. The vocabulary is read at the first count (half a
    second); if that fails the meter estimates from then on, and its `name` and `reason` say so.
    """
    try:
        _intact_folder(encoding)
    except _VocabularyError as error:
        return EstimateMeter(str(error))
    return TiktokenMeter(encoding, lambda: _load(encoding))


class _VocabularyError(Exception):
    """A vocabulary is missing or damaged. Stays inside this module: `open_meter` turns it into a reason."""


class EstimateMeter:
    """Counts without a vocabulary, mostly rather too high than too low. Monotone: a prefix never counts more than the whole.

    A token is 4 ASCII letters or blanks, 2 digits or signs, 2 characters of other alphabets, 1 of CJK, half an emoji, and 1
    character of a run of 64 or more without a break (base64, hex).
    """

    name = "estimate"

    def __init__(self, reason: str = "no vocabulary was asked for") -> None:
        self.reason = reason

    def count(self, text: str) -> int:
        """About the tokens of `text`."""
        return -(-_units(text) // _UNITS)

    def head(self, text: str, limit: int) -> str:
        """The longest prefix with `count(prefix) <= limit`, found by halving; a character costs a quarter token at least."""
        low, high = 0, min(len(text), max(0, limit) * _UNITS)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.count(text[:middle]) <= limit else (low, middle - 1)
        return text[: _cluster_start(text, low)]


class TiktokenMeter:
    """Counts with a tiktoken encoding, which `load` gives at the first count. Safe to share between threads."""

    def __init__(self, encoding: str, load: Callable[[], tiktoken.Encoding]) -> None:
        self._encoding_name = encoding
        self._load = load
        self._encoder: tiktoken.Encoding | None = None
        self._estimate = EstimateMeter()
        self._counts = _Counts(_CACHED_CHARACTERS)
        self._lock = Lock()
        self.reason: str | None = None
        """Why this meter estimates, if it does."""

    @property
    def name(self) -> str:
        """The encoding's name; "estimate" once its vocabulary has failed to load."""
        return self._estimate.name if self.reason else self._encoding_name

    def count(self, text: str) -> int:
        """The tokens of `text`, counted in pieces of at most 4,000 characters (0.1 % more than in one), and remembered."""
        known = self._counts.get(text)
        if known is not None:
            return known
        total = sum(self._count_piece(text[start:end]) for start, end in _pieces(text))
        self._counts.put(text, total)
        return total

    def head(self, text: str, limit: int) -> str:
        """The longest prefix made of whole tokens with `count(prefix) <= limit`; no letter loses its marks."""
        left = limit
        for start, end in _pieces(text):
            cost = self._count_piece(text[start:end])
            if cost > left:
                return self._trim(text, start + self._fitting(text[start:end], left), limit)
            left -= cost
        return text

    def _trim(self, text: str, end: int, limit: int) -> str:
        # A prefix may encode otherwise than it did within the text, mostly by one token at the cut.
        end = _cluster_start(text, end)
        while end > 0 and self.count(text[:end]) > limit:
            end = _cluster_start(text, end - 1)
        return text[:end]

    def _count_piece(self, piece: str) -> int:
        tokens = self._encode(piece)
        return self._estimate.count(piece) if tokens is None else len(tokens)

    def _fitting(self, piece: str, limit: int) -> int:
        """How many characters of `piece` its first `limit` tokens hold."""
        encoder, tokens = self._encoder, self._encode(piece)
        if encoder is None or tokens is None:
            return len(self._estimate.head(piece, limit))
        return len(encoder.decode_bytes(tokens[: max(0, limit)]).decode("utf-8", "ignore"))

    def _encode(self, piece: str) -> list[int] | None:
        """The tokens of a piece; none if the encoder is missing or gives up on it."""
        encoder = self._open()
        if encoder is None:
            return None
        try:
            # One U+FFFD for each lone surrogate, as the encoder would do, but with the same number of characters.
            return encoder.encode(well_formed(piece), disallowed_special=())
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001  # the encoder's panic is a BaseException and must not end the user's call
            return None

    def _open(self) -> tiktoken.Encoding | None:
        if self._encoder is None and self.reason is None:
            with self._lock:
                if self._encoder is None and self.reason is None:
                    try:
                        self._encoder = self._load()
                    except Exception as error:  # noqa: BLE001  # whatever it is, an estimate is better than no call
                        self.reason = f"{self._encoding_name}: {type(error).__name__}: {error}"
        return self._encoder


class _Counts:
    """The counts of the texts seen last, bounded by their characters."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._size = capacity, 0
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> int | None:
        with self._lock:
            count = self._counts.get(text)
            if count is not None:
                self._counts.move_to_end(text)
            return count

    def put(self, text: str, count: int) -> None:
        cost = len(text) + _ENTRY
        if cost > self._capacity:
            return
        with self._lock:
            if text not in self._counts:
                self._size += cost
            self._counts[text] = count
            while self._size > self._capacity:
                oldest, _ = self._counts.popitem(last=False)
                self._size -= len(oldest) + _ENTRY


def image_tokens(width: int | None, height: int | None, detail: str | None) -> int:
    """The tokens of a picture of `width` x `height` pixels by OpenAI's tile formula.

    85, and 170 for each tile of 512 x 512 pixels once the picture is scaled down to fit 2048 x 2048 and then to a shortest
    side of 768. `detail="low"` costs 85. A picture of unknown size costs as one of 1024 x 1024 (765). Other vendors count
    otherwise, by the same order of magnitude.
    """
    if detail == "low":
        return _PICTURE
    if width is None or height is None or width <= 0 or height <= 0:
        width = height = 1024
    short, long = sorted((width, height))
    # The scale as a fraction: 1 or less, exact on every platform.
    scale, whole = (_FIT, long) if long > _FIT else (1, 1)
    if short * scale > _SHORT_SIDE * whole:
        scale, whole = _SHORT_SIDE, short
    across, down = (-(-side * scale // (whole * _TILE)) for side in (short, long))
    return _PICTURE + _PER_TILE * across * down


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of an encoded picture, as shown (turned if its metadata say so); None if unreadable."""
    from io import BytesIO  # noqa: PLC0415

    import imagesize  # type: ignore[import-untyped]  # noqa: PLC0415  # a text-only session never needs it

    # The PNM reader takes its decimal numbers byte by byte, at the square of their length.
    readable = data[:1024] if data[:1] == b"P" else data
    try:
        width, height = (int(side) for side in imagesize.get(BytesIO(readable)))
    except Exception:  # noqa: BLE001  # any fault in a picture's header means the same: its size is unknown
        return None
    return (width, height) if width > 0 and height > 0 else None


def _intact_folder(encoding: str) -> Path:
    """The folder with the undamaged vocabulary of `encoding`.

    tiktoken deletes a file whose hash is wrong and then asks the network, so nothing unchecked may be shown to it.
    """
    if encoding not in VOCABULARIES:
        raise _VocabularyError(f"no vocabulary is known for encoding {encoding!r}, only for {', '.join(VOCABULARIES)}")
    if find_spec("tiktoken") is None:
        raise _VocabularyError("tiktoken is not installed")
    file_name, expected = VOCABULARIES[encoding]
    folder = _vocabulary_folder()
    try:
        found = hashlib.sha256((folder / file_name).read_bytes()).hexdigest()
    except OSError as error:
        raise _VocabularyError(f"{encoding}: {folder / file_name} cannot be read ({error.strerror})") from error
    if found != expected:
        raise _VocabularyError(
            f"{encoding}: {folder / file_name} is damaged, its SHA-256 is {found[:12]} and not {expected[:12]}"
        )
    return folder


def _vocabulary_folder() -> Path:
    chosen = os.environ.get(_CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise _VocabularyError(
            f"litellm, which brings the vocabularies, is not installed, and {_CACHE_VARIABLE} is not set"
        )
    return Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")


def _load(encoding: str) -> tiktoken.Encoding:
    import tiktoken  # noqa: PLC0415  # only a count needs it

    folder = _intact_folder(encoding)  # again: since `open_meter` looked, time has passed
    before = os.environ.get(_CACHE_VARIABLE)
    os.environ[_CACHE_VARIABLE] = str(folder)  # what it is already, if it is set
    try:
        return tiktoken.get_encoding(encoding)
    finally:
        if before is None:
            os.environ.pop(_CACHE_VARIABLE, None)
        else:
            os.environ[_CACHE_VARIABLE] = before


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = _piece_end(text, start)
        yield start, end
        start = end


def _piece_end(text: str, start: int) -> int:
    line_end = text.find("\n", start + _LINE_FROM, start + _BLANK_FROM)
    if line_end >= 0:
        return line_end + 1
    blank = _BLANK.search(text, start + _BLANK_FROM, start + _PIECE)
    return blank.start() if blank else min(start + _PIECE, len(text))


def _units(text: str) -> int:
    extra = sum(3 * len(run) for run in _UNBROKEN.findall(text))
    rest = _UNBROKEN.sub("", text)
    for pattern, weight in _DEARER:
        extra += weight * sum(map(len, pattern.findall(rest)))
    return len(text) + extra


def _cluster_start(text: str, end: int) -> int:
    """The cut at `end`, or a little before it where that would part a letter from its marks or an emoji from its rest."""
    for cut in range(end, max(0, end - _MAX_CLUSTER), -1):
        if cut >= len(text) or not _joined(text[cut - 1], text[cut]):
            return cut
    return end if end > _MAX_CLUSTER else 0


def _joined(before: str, after: str) -> bool:
    if after.isascii():
        return before == "\r" and after == "\n"
    is_pair = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
    is_mark = unicodedata.category(after)[0] == "M" or "\U0001f3fb" <= after <= "\U0001f3ff"
    return is_pair or is_mark or _JOINER in {before, after}
