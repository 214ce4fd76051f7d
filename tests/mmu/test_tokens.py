"""Token counts: tiktoken where its vocabulary is at hand, an estimate where it is not, and the price of pictures."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import struct
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import cast

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from mmu.tokens import VOCABULARIES, EstimateMeter, Meter, TiktokenMeter, image_size, image_tokens, open_meter

O200K = open_meter()
METERS = pytest.mark.parametrize("meter", [O200K, EstimateMeter()], ids=["o200k_base", "estimate"])
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200) | st.text(
    "ae\u0301\u200d👩🏽🇹🇷汉 \r\n\ud800\udc00\x00<|endoftext|>",
    max_size=30,  # marks in a row without end are another test
)
LONG = "".join(f"Line {number}: the relay moved to port {8000 + number}, déjà vu 汉字 😀.\n" for number in range(600))
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 1920, 1080) + b"\x08\x06\x00\x00\x00"


class Encoder:
    """Stands in for a tiktoken encoding: a token for each UTF-8 byte, a fault if one is set, a list of what was asked."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.fault, self.asked = fault, list[str]()

    def encode(self, text: str, disallowed_special: tuple[()]) -> list[int]:
        self.asked.append(text)
        if self.fault:
            raise self.fault
        return list(text.encode())

    def decode_bytes(self, tokens: list[int]) -> bytes:
        return bytes(tokens)


class PanicException(BaseException):
    """As pyo3 has it: no `Exception`."""


def meter_with(encoder: Encoder) -> TiktokenMeter:
    return TiktokenMeter("fake", lambda: cast(tiktoken.Encoding, encoder))


def python(program: str, **environment: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TIKTOKEN_CACHE_DIR"} | environment
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
    ).stdout


def test_a_short_text_counts_as_tiktoken_counts_it() -> None:
    text = "PostgreSQL läuft auf Port 5433 — déjà vu, 汉字 😀"
    assert O200K.count(text) == len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))
    assert O200K.name == "o200k_base"


def test_a_long_text_counts_nearly_as_in_one_piece() -> None:
    whole = len(tiktoken.get_encoding("o200k_base").encode_ordinary(LONG))
    assert whole <= O200K.count(LONG) <= whole * 1.002


def test_names_of_special_tokens_count_as_plain_text() -> None:
    assert O200K.count("<|endoftext|>") > 1


@METERS
@pytest.mark.parametrize("text", ["", " " * 300_000, "^" * 300_000, "\ud83d" * 9000, "\x00" * 9000, "a\u0301" * 9000])
def test_no_text_raises(meter: Meter, text: str) -> None:
    assert (meter.count(text) > 0) == bool(text)
    assert text.startswith(meter.head(text, 100))


@METERS
@given(text=ANY_TEXT, limit=st.integers(-1, 80))
@settings(deadline=None)
def test_a_head_is_a_prefix_within_the_limit_and_parts_no_character(meter: Meter, text: str, limit: int) -> None:
    head = meter.head(text, limit)
    assert text.startswith(head)
    assert meter.count(head) <= max(0, limit)
    if head and len(head) < len(text):
        following = text[len(head)]
        assert not unicodedata.combining(following)
        assert (head[-1], following) not in {("\r", "\n"), ("\ud800", "\udc00")}
        assert following != "\u200d"
        assert head[-1] != "\u200d" or following.isascii()


@METERS
@given(text=ANY_TEXT)
@settings(deadline=None)
def test_a_text_within_the_limit_is_its_own_head(meter: Meter, text: str) -> None:
    assert meter.head(text, meter.count(text)) == text


@given(limit=st.integers(1, 14_000))
@settings(max_examples=30, deadline=None)
def test_the_head_of_a_long_text_uses_the_limit(limit: int) -> None:
    head = O200K.head(LONG, limit)
    assert limit - 3 <= O200K.count(head) <= limit or head == LONG


@METERS
def test_marks_without_end_do_not_hold_a_head_back(meter: Meter) -> None:
    assert len(meter.head("e" + "\u0301" * 5000, 100)) > 50


@pytest.mark.parametrize("fault", [ValueError("Regex error"), PanicException("stack overflow")])
def test_a_piece_the_encoder_gives_up_on_is_estimated(fault: BaseException) -> None:
    meter = meter_with(Encoder(fault))
    assert meter.count(LONG) >= EstimateMeter().count(LONG)
    assert LONG.startswith(meter.head(LONG, 50))
    assert meter.name == "fake"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_wish_to_stop_is_not_swallowed(stop: type[BaseException]) -> None:
    with pytest.raises(stop):
        meter_with(Encoder(stop())).count("text")


def test_the_encoder_never_sees_more_than_4000_characters() -> None:
    encoder = Encoder()
    assert meter_with(encoder).count(LONG + "a" * 20_000 + " b" * 9000) > 0
    assert max(map(len, encoder.asked)) <= 4000
    assert "".join(encoder.asked) == LONG + "a" * 20_000 + " b" * 9000


def test_a_text_counted_before_is_not_encoded_again() -> None:
    encoder = Encoder()
    meter = meter_with(encoder)
    assert [meter.count("some text"), meter.count("some text")] == [9, 9]
    assert encoder.asked == ["some text"]


def test_what_is_remembered_is_bounded_by_its_characters() -> None:
    encoder = Encoder()
    meter = meter_with(encoder)
    texts = [letter * 3_000_000 for letter in "abc"]
    for text in (*texts, texts[0]):
        assert meter.count(text) == 3_000_000
    assert sum(map(len, encoder.asked)) == 12_000_000, "the oldest of three was forgotten"


def test_a_lone_surrogate_is_encoded_as_one_replacement_character() -> None:
    encoder = Encoder()
    assert meter_with(encoder).count("a\ud800\udc00") == 7
    assert encoder.asked == ["a\ufffd\ufffd"]


def test_the_encoder_is_loaded_once_at_the_first_count() -> None:
    loads: list[Encoder] = []
    second = Barrier(2)

    def load() -> tiktoken.Encoding:
        loads.append(Encoder())
        with suppress(BrokenBarrierError):
            second.wait(timeout=0.1)  # lets a second load begin, if it can
        return cast(tiktoken.Encoding, loads[-1])

    meter = TiktokenMeter("fake", load)
    assert not loads
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(meter.count, ["x" * n for n in range(1, 40)])) == list(range(1, 40))
    assert len(loads) == 1


def test_a_vocabulary_that_fails_to_load_leaves_an_estimate_and_the_reason() -> None:
    def load() -> tiktoken.Encoding:
        raise OSError("disk is gone")

    meter = TiktokenMeter("o200k_base", load)
    assert meter.count("some prose here") == EstimateMeter().count("some prose here")
    assert (meter.name, meter.reason) == ("estimate", "o200k_base: OSError: disk is gone")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_missing_or_damaged_vocabulary_is_left_alone(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / VOCABULARIES["o200k_base"][0]
    if damaged:
        file.write_bytes(b"IQ== 0\n")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    meter = open_meter()
    assert isinstance(meter, EstimateMeter)
    assert str(file) in meter.reason
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"IQ== 0\n"] if damaged else [])


def test_an_unknown_encoding_is_estimated() -> None:
    meter = open_meter("klingon_base")
    assert isinstance(meter, EstimateMeter)
    assert "klingon_base" in meter.reason


@pytest.mark.parametrize("encoding", VOCABULARIES)
def test_the_pinned_hashes_are_those_tiktoken_expects(encoding: str) -> None:
    source = inspect.getsource(openai_public)
    name, sha256 = VOCABULARIES[encoding]
    urls = {hashlib.sha1(url.encode()).hexdigest(): url for url in re.findall(r'"(https://[^"]+\.tiktoken)"', source)}
    assert urls[name] in source.partition(sha256)[0][-200:]
    assert open_meter(encoding).name == encoding


def test_nothing_heavy_is_imported_before_a_count_and_the_environment_stays_as_it_was() -> None:
    program = """
import os, sys
import mmu.terms, mmu.value
from mmu.tokens import open_meter
meter = open_meter()
print(meter.name, sorted({"tiktoken", "litellm", "imagesize", "numpy"} & set(sys.modules)))
print(meter.count("hello world"), "TIKTOKEN_CACHE_DIR" in os.environ, "litellm" in sys.modules)
"""
    assert python(program).splitlines() == ["o200k_base []", "2 False False"]


@given(ANY_TEXT, st.text(max_size=20))
@settings(deadline=None)
def test_an_estimate_grows_with_the_text(text: str, more: str) -> None:
    meter = EstimateMeter()
    assert meter.count(text) <= meter.count(text + more) <= meter.count(text) + meter.count(more) + 64


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The relay moved to another port because the old one was taken. " * 50, 0.8, 1.4),
        ("数据库端口已经改为" * 100, 0.9, 1.7),
        ("Порт базы данных изменён на новый. " * 100, 0.9, 2.0),
        ("def load(self, path: Path) -> dict[str, int]:\n    return self._cache[path]\n" * 40, 0.8, 1.7),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 50, 1.0, 2.5),
        ("😀🎉" * 200, 0.9, 1.7),
    ],
)
def test_an_estimate_is_near_the_count(text: str, low: float, high: float) -> None:
    assert low <= EstimateMeter().count(text) / O200K.count(text) <= high


@pytest.mark.parametrize(
    ("width", "height", "detail", "tokens"),
    [
        (1024, 1024, "high", 765),
        (2048, 4096, "high", 1105),
        (1920, 1080, None, 1105),
        (512, 512, "auto", 255),
        (513, 512, None, 425),
        (1, 1, None, 255),
        (100_000, 1, None, 765),
        (4096, 8192, "low", 85),
        (None, None, None, 765),
        (None, 50, "high", 765),
        (0, -3, None, 765),
    ],
)
def test_a_picture_costs_by_its_tiles(width: int | None, height: int | None, detail: str | None, tokens: int) -> None:
    assert image_tokens(width, height, detail) == tokens


@given(st.integers(1, 20_000), st.integers(1, 20_000))
@settings(deadline=None)
def test_a_turned_picture_costs_the_same_and_none_costs_more_than_eight_tiles(width: int, height: int) -> None:
    cost = image_tokens(width, height, None)
    assert cost == image_tokens(height, width, None)
    assert 255 <= cost <= 85 + 8 * 170


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG, (1920, 1080)),
        (b"GIF89a" + struct.pack("<HH", 30, 40) + b"\0" * 5, (30, 40)),
        (b"P6 7 9 255\n", (7, 9)),
        (PNG[:20], None),
        (b"", None),
        (b"not a picture", None),
        (b"P5 " + b"9" * 5_000_000, None),
        (b"GIF89a" + struct.pack("<HH", 0, 0), None),
    ],
)
def test_the_size_of_a_picture_is_read_from_its_head(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


@given(
    st.sampled_from(
        [PNG[:8], b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"RIFF", b"BM", b"P6", b"<svg ", b"\0\0\0\x18ftypheic"]
    ),
    st.binary(max_size=200),
)
@settings(deadline=None)
def test_no_bytes_raise(start: bytes, rest: bytes) -> None:
    size = image_size(start + rest)
    assert size is None or min(size) > 0
