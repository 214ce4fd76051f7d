"""Terms (ipcf.md 4): what a step is found by, and what a prompt asks for."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
import subprocess
import sys
import unicodedata
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmu.terms import (
    MAX_FILES,
    STOP_WORDS_SHA256,
    compose,
    extract,
    fold_case,
    named_steps,
    path_spans,
    prompt_terms,
    stop_words,
)

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text(
    "aAİıIiΣσ\u0307\u0301\u0327\ud800\x00前_7/.~:\\$ \n\"'(", max_size=60
)
SMALL_BLOB = base64.b64encode(random.Random(1).randbytes(900)).decode()
BLOB = base64.b64encode(random.Random(2).randbytes(3_750_000)).decode()


def wrapped(text: str, width: int, end: str) -> str:
    return end.join(text[start : start + width] for start in range(0, len(text), width))


def test_words_of_code_stay_whole() -> None:
    found = extract(
        "", "__init__ _private_var sipariş_tablosu V12__TenantBilling.sql tenantBilling x db ____"
    ).identifiers
    assert {"__init__", "_private_var", "sipariş_tablosu", "v12__tenantbilling", "tenantbilling"} <= set(found)
    assert not {"init", "private_var", "sipariş", "tenant", "billing", "db", "x", "____"} & set(found)


def test_runs_of_three_digits_are_terms_and_shorter_ones_are_not() -> None:
    assert extract("", "5433 443 80 7").identifiers == ("443", "5433")


def test_a_word_that_starts_with_digits_counts_from_its_first_letter() -> None:
    assert extract("", "commit 9b5ad71, 0x7f3a, 5433tcp").identifiers == ("5433", "b5ad71", "commit", "tcp", "x7f3a")


def test_a_function_word_in_two_languages_is_no_term() -> None:
    text = "What port are we using for PostgreSQL, and which migration applied? Hangi bağlantı için İÇİN değil DEĞİL"
    assert prompt_terms(text) == {"port", "postgresql", "migration", "applied", "bağlanti"}


def test_words_that_tell_states_apart_are_terms() -> None:
    assert prompt_terms("applied latest current failed size down off") == {
        "applied",
        "latest",
        "current",
        "failed",
        "size",
        "down",
        "off",
    }


@pytest.mark.parametrize("language", STOP_WORDS_SHA256)
def test_the_stop_words_are_the_pinned_ones(language: str) -> None:
    data = (resources.files("mmu") / "stopwords" / f"{language}.txt").read_bytes()
    assert hashlib.sha256(data).hexdigest() == STOP_WORDS_SHA256[language]
    words = data.decode().split()
    assert words == sorted(set(words))
    assert all(len(word) >= 3 for word in words), "a shorter word is no term anyway"
    assert {fold_case(word) for word in words} <= stop_words()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("İnş", "inş"),
        ("Işık", "ışık"),
        ("İSTANBUL", "i\u0307stanbul"),
        ("Cafe\u0301", "CAFÉ"),
        ("한글", unicodedata.normalize("NFD", "한글")),
    ],
)
def test_two_spellings_of_a_word_fold_equal(one: str, other: str) -> None:
    assert fold_case(one) == fold_case(other)


@given(ANY_TEXT)
@settings(deadline=None)
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold_case(fold_case(text)) == fold_case(text)


@given(ANY_TEXT, ANY_TEXT)
@settings(deadline=None)
def test_terms_are_sorted_distinct_folded_and_fit_for_a_node(summary: str, rendering: str) -> None:
    terms = extract(summary, rendering)
    for names in (terms.identifiers, terms.files, terms.commands, terms.errors):
        assert list(names) == sorted(set(names))
        "".join(names).encode()
    assert all(fold_case(term) == term for term in terms.identifiers)
    assert not stop_words() & set(terms.identifiers)


@given(ANY_TEXT)
@settings(deadline=None)
def test_a_prompt_is_read_as_a_step_is(text: str) -> None:
    assert prompt_terms(text) == set(extract("", text).identifiers) == set(extract(text, "").identifiers)


@given(ANY_TEXT)
@settings(deadline=None)
def test_nfc_and_nfd_give_the_same_terms(text: str) -> None:
    assert extract("", unicodedata.normalize("NFD", text)) == extract("", unicodedata.normalize("NFC", text))


def test_a_latin_word_between_characters_of_another_script_is_found() -> None:
    terms = prompt_terms("前watchdog后 端口5433已 데이터베이스postgres를 订单_表")
    assert terms == {"watchdog", "5433", "데이터베이스", "postgres", "订单_表"}


def test_no_combining_mark_is_part_of_a_word_so_that_all_are_thinned_out() -> None:
    marks = [chr(code) for code in range(0x20000) if unicodedata.combining(chr(code))]
    assert len(marks) > 800
    assert not re.search(r"[\w\s]", "".join(marks))


def test_odd_bytes_do_not_raise() -> None:
    text = "W\0s\0l\0 \ud83d relay\udc00 \x00ValueError\x00 $ x\n$ run \ud800\n"
    terms = extract(text, text)
    assert terms.commands == ("run \ufffd",)
    assert {"relay", "valueerror", "run"} <= set(terms.identifiers)


def test_what_looks_like_a_path_is_a_file_and_a_term() -> None:
    text = (
        "see src/app.py. `V12__TenantBilling.sql`, config.env; /etc/hosts ./run ~/x C:\\Users\\Ayşe\\a.txt docs/ a/b/c"
        " --config=lib/x.toml src/Makefile pages/index.tsx:12:3 修改web/main.ts文件 .gitignore"
    )
    terms = extract("", text)
    assert terms.files == (
        *(
            "./run",
            ".gitignore",
            "/etc/hosts",
            "C:\\Users\\Ayşe\\a.txt",
            "V12__TenantBilling.sql",
            "a/b/c",
            "config.env",
        ),
        *("docs/", "lib/x.toml", "pages/index.tsx", "src/Makefile", "src/app.py", "web/main.ts"),
    )
    assert {"src/app.py", "v12__tenantbilling.sql", "c:\\users\\ayşe\\a.txt"} <= set(terms.identifiers)


NO_PATHS = [
    *("https://x.io/a/b.html", "and/or TCP/IP 1/2", "2024/01/02", "</div><br/>", "console.log('x')", "s/5434/5433/g"),
    *("os.path e.g. v1.2.3", "origin/main application/json", "user@example.com", "...", "../..", "/", "//", "%s/%s"),
    "a." * 300 + "py",
]


@pytest.mark.parametrize("text", NO_PATHS)
def test_what_only_resembles_a_path_is_none(text: str) -> None:
    assert extract("", text).files == ()


@given(ANY_TEXT)
@settings(deadline=None)
def test_the_spans_of_paths_are_in_order_and_apart(text: str) -> None:
    ends = [place for span in path_spans(compose(text)) for place in span]
    assert ends == sorted(ends)


def test_commands_are_what_follows_a_dollar_sign_at_the_start_of_a_line() -> None:
    terms = extract("$ make test ", "out\n$ psql -p 5434\r\n  $ not this\n$not this\n$   \n$ make test\n$ " + "x" * 500)
    assert terms.commands == ("make test", "psql -p 5434", "x" * 200)


def test_errors_are_names_as_written_and_the_last_part_of_dotted_ones() -> None:
    text = (
        "java.lang.NullPointerException: x, ValueError. 抛出KeyError异常 ECONNREFUSED SIGKILL"
        " lastError Error ERROR EXIT isDefault"
    )
    terms = extract("", text)
    assert terms.errors == (
        *("ECONNREFUSED", "KeyError", "NullPointerException", "SIGKILL", "ValueError"),
        "java.lang.NullPointerException",
    )
    assert "java.lang.nullpointerexception" in terms.identifiers


BLOBS = [
    *(SMALL_BLOB, wrapped(SMALL_BLOB, 76, "\n"), wrapped(SMALL_BLOB, 64, "\r\n"), wrapped(SMALL_BLOB, 76, "\\n")),
    *(SMALL_BLOB.encode().hex(), "data:image/png;base64,iVBORw0KGgo=", "data:image/svg+xml,%3Csvg%20width=%22"),
]


@pytest.mark.parametrize("blob", BLOBS)
def test_a_blob_gives_no_terms_and_is_counted(blob: str) -> None:
    last_line = blob.replace("\\n", "\n").splitlines()[-1]  # a short one is not told from a word
    terms = extract("", f'relay "{blob}" port')
    assert {"relay", "port"} <= set(terms.identifiers)
    if len(last_line) < 60:
        assert all(term in fold_case(last_line) for term in set(terms.identifiers) - {"relay", "port"})
    else:
        assert terms.identifiers == ("port", "relay")
    assert terms.cut == 1


def test_a_rule_of_dashes_is_no_blob_and_a_long_word_is_cut() -> None:
    assert extract("", "-" * 300 + "\n" + "=" * 300).cut == 0
    assert extract("", "ab." * 3 + "x" * 81).cut == 1


def test_the_limit_keeps_the_summary_then_errors_and_paths_then_what_came_first() -> None:
    rendering = "first second third src/app.py KeyError fourth"
    assert extract("zeta eta", rendering, 1).identifiers == ("zeta",)
    assert extract("zeta eta", rendering, 4).identifiers == ("eta", "keyerror", "src/app.py", "zeta")
    limited = extract("zeta eta", rendering, 5)
    assert set(limited.identifiers) == {"zeta", "eta", "keyerror", "src/app.py", "first"}
    assert limited.cut == len(extract("zeta eta", rendering).identifiers) - 5
    assert limited.files == ("src/app.py",)


def test_many_paths_do_not_push_out_the_words() -> None:
    listing = "\n".join(f"/srv/data/{number:05}.csv" for number in range(6_000))
    terms = extract("", f"relay\n{listing}")
    assert len(terms.files) == MAX_FILES
    assert len(terms.identifiers) == 4096
    assert "relay" in terms.identifiers
    assert terms.cut > 7_000


LONG_TEXTS = [
    *(
        BLOB,
        wrapped(BLOB, 76, "\n"),
        "/" * 5_000_000,
        " " * 5_000_000,
        "a" * 5_000_000,
        "\n" * 500_000,
        "." * 200_000,
    ),
    *("(a/" * 70_000, "\u0301\u0323" * 200_000, "a." * 100_000, "汉a" * 100_000, "$ " * 250_000, "\\n" * 80_000),
    *(
        "EError." * 70_000,
        "data:" * 40_000,
        ("A" * 60 + "\n" + "A" * 59 + "\n") * 4_000,
        "C:/" * 70_000,
        "─" * 200_000,
    ),
]


@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: f"{text[:6]!a}x{len(text)}")
def test_reading_ends_on_any_long_text(text: str) -> None:
    assert len(extract("", text).identifiers) <= 6


def test_the_terms_do_not_depend_on_hash_seed_or_locale() -> None:
    program = (
        "from mmu.terms import extract\n"
        "print(ascii(extract('Işık İnş', 'a/b/c.py KeyError ' + ' '.join(map(hex, range(9999))), 99)))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": locale},
            capture_output=True,
            check=True,
        ).stdout
        for seed, locale in (("1", "C"), ("2", "tr_TR.UTF-8"))
    ]
    assert runs[0] == runs[1] != b""


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("What did step 137 say? And Step #12?", (137, 12)),
        ("adım 137, ADIM 9'daki", (137, 9)),
        ("step#4 step 4", (4,)),
        ("steps 3 and 4; step-by-step 3; step 1.5; footstep 7; step one; step\n8; step 5th", ()),
        ("step 99999999999999999999", ()),
        ("step 137.", (137,)),
    ],
)
def test_a_step_is_named_by_the_word_right_before_its_number(text: str, steps: tuple[int, ...]) -> None:
    assert named_steps(text) == steps
