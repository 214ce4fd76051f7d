"""The value a step gives for a query: of "timeout" over "Timeout raised from 20s to 30s" it is 30s (ipcf.md 5).

A text is read as tokens, each of one kind. Words and names may match the query; numbers, versions, paths, quoted strings
and names are literals. Values are verbatim slices. Reading is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter

from mmu.terms import CJK, compose, fold_case, path_spans, prompt_terms

REACH = 6
"""Words behind the last matched term in which a literal is looked for."""

_AHEAD = 2000
"""Characters behind it that are read for these words."""

_MAX_LITERAL = 240
_PART = 4000

_NUMBER, _DECIMAL, _VERSION, _PATH = "number", "decimal", "version", "path"
_QUOTED, _NAME, _KEBAB, _WORD = "quoted", "name", "kebab", "word"
_MATCHING = frozenset({_NAME, _KEBAB, _WORD})

Preference = tuple[frozenset[str], ...]
"""Kinds of literals that answer a query, the best ones first; kinds of one set are equally good."""

_ANY: Preference = tuple(map(frozenset, ({_NUMBER, _DECIMAL}, {_VERSION}, {_PATH}, {_QUOTED}, {_NAME})))


def _asked(words: str, *preference: set[str]) -> tuple[frozenset[str], Preference]:
    return frozenset(map(fold_case, words.split())), tuple(map(frozenset, preference))


# The words that ask for a kind; the first row that has a word of the query decides. A version may be a bare number, so
# "version number" and "how many versions" are safe in the first row, and "number of files" in the second.
_ASKED = (
    _asked(
        "version versions release versión versione versão sürüm sürümü versiyon versiyonu версия версию версии 版本"
        " バージョン 버전",
        {_VERSION, _DECIMAL},
        {_NUMBER},
    ),
    _asked(
        "number count many much kaç sayı sayısı adet viele anzahl combien cuántos cuántas número quanti quantos сколько"
        " количество число 几个 数量 いくつ 개수",
        {_NUMBER, _DECIMAL},
    ),
    _asked(
        "path file folder directory dosya dosyası klasör klasörü dizin dizini yol yolu datei pfad ordner verzeichnis fichier"
        " chemin dossier répertoire archivo fichero ruta carpeta directorio percorso cartella arquivo caminho pasta файл путь"
        " папка каталог 文件 路径 目录 ファイル パス フォルダ 파일 경로 폴더",
        {_PATH},
    ),
    _asked(
        "name named called adı ismi isim heißt nom nome llama имя название называется 名称 名字 名前 이름",
        {_QUOTED, _NAME, _KEBAB},
    ),
)
_NO_BLANKS = re.compile(f"[{CJK}]+")  # words of these scripts are looked up inside a run

_LETTER = rf"[^\W{CJK}]"
_URL = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'<>`(){}\[\]]*[^\s\"'<>`(){}\[\].,;:!?]")
_TOKEN = re.compile(
    r"\"(?! )[^\"\n]{1,120}\"|“[^”\n]{1,120}”|«[^»\n]{1,120}»|「[^」\n]{1,120}」|`[^`\n]{1,120}`"
    r"|(?<!\w)'(?! )[^'\n]{1,120}'(?!\w)"
    rf"|(?:(?<=[\s=:(])[+-](?=\d))?{_LETTER}++(?:[.-]{_LETTER}++|(?<=\d):(?=\d){_LETTER}++|(?<=\d),\d{{3}}(?!\d))*+%?"
    rf"|[{CJK}]++"
)
_RUN = re.compile(rf"{_LETTER}+|[{CJK}]+")
_QUOTES = re.compile(r"[\"“”«»「」`']")
_FORMS = (
    (re.compile(r"[vV]\d+(?:[.-]\w+)*|\d+(?:\.\d+){2,}(?:[.-]?[A-Za-z][\w.-]*)?"), _VERSION),
    (re.compile(r"\d+\.\d+(?:-[A-Za-z][\w.-]*|(?:a|b|rc)\d+)"), _VERSION),
    (re.compile(r"\d+\.\d+"), _DECIMAL),
    (re.compile(r"[+-]?\d(?:[\d.,:-]*\d)?(?:%|[A-Za-zµ]{1,3})?"), _NUMBER),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.+-]+Z?|0[xX][0-9A-Fa-f]+"), _NUMBER),
    # A letter, and a digit, an underscore, a dot or a capital behind a small letter.
    (re.compile(r"(?=.*[^\W\d_])(?:.*[\d_.].*|.*[a-zß-öø-ÿ][A-ZÀ-ÖØ-Þ].*)"), _NAME),
)
_KEY = re.compile(r"[\"']?[ \t]{0,2}[:=]")
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？\n]")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    start: int
    end: int


def value_after(query: str, texts: Sequence[str]) -> str | None:
    """The last literal of the kind asked for, within six words behind the last matched term; None if there is none.

    `texts` are tried in order: the summary of a step, then its rendering. The kind is guessed from general words of the query
    ("version", "file", "name", "how many"); without one, any literal will do, numbers first. A sentence, a line or a
    `key: value` pair that gave a literal ends the search, so that what stands next to the answer is not taken for it.
    """
    terms, preference = prompt_terms(query), _preference(query)
    for text in map(compose, texts):
        # What is quoted is one literal; only if that gives nothing, the words inside the quotes are read.
        for reading in dict.fromkeys((text, _QUOTES.sub(" ", text))):
            literal = _literal_after(reading, terms, preference)
            if literal:
                written: str = text[literal.start : literal.end]
                return written[1:-1].strip() if literal.kind == _QUOTED else written
    return None


def _preference(query: str) -> Preference:
    runs = _RUN.findall(fold_case(query))
    for words, preference in _ASKED:
        if any(word in run if _NO_BLANKS.fullmatch(word) else word == run for run in runs for word in words):
            return preference
    return _ANY


def _literal_after(text: str, terms: frozenset[str], preference: Preference) -> _Token | None:
    match = _last_match(text, terms)
    if match is None:
        return None
    behind = list(islice(_tokens(text, match.end, match.end + _AHEAD), REACH))
    found = (_last_literal(text, match, behind, kinds) for kinds in preference)
    return next(filter(None, found), None)


def _last_literal(text: str, match: _Token, behind: Sequence[_Token], kinds: frozenset[str]) -> _Token | None:
    in_pair, literal, end = _is_key(text, match), None, match.end
    for token in behind:
        if literal and _SENTENCE_END.search(text, end, token.start):
            break
        if (literal or in_pair) and _is_key(text, token):
            break  # the value of another key
        if token.kind in kinds:
            literal = token
        end = token.end
    return literal


def _is_key(text: str, token: _Token) -> bool:
    return token.kind not in {_NUMBER, _DECIMAL, _PATH} and _KEY.match(text, token.end) is not None


def _last_match(text: str, terms: frozenset[str]) -> _Token | None:
    """The last token that is one of the terms, or has one as a part between dots and hyphens."""
    for start, end in _lines_from_the_end(text):
        if not terms.isdisjoint(_RUN.findall(fold_case(text[start:end]))):
            matches = [token for token in _tokens(text, start, end) if _matches(text, token, terms)]
            if matches:
                return matches[-1]
    return None


def _lines_from_the_end(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each line, the last one first. A long line comes in parts, so that its end costs no more than that."""
    end = len(text)
    while end > 0:
        lowest = max(0, end - _PART)
        start = text.rfind("\n", lowest, end - 1) + 1
        if start == 0 and lowest > 0:
            start = text.find(" ", lowest, end - 1) + 1 or lowest
        yield start, end
        end = start


def _matches(text: str, token: _Token, terms: frozenset[str]) -> bool:
    if token.kind == _QUOTED:  # a quoted word is a key; a quoted phrase is a value
        return fold_case(text[token.start + 1 : token.end - 1]) in terms
    return token.kind in _MATCHING and not terms.isdisjoint(_RUN.findall(fold_case(text[token.start : token.end])))


def _tokens(text: str, start: int, end: int) -> Iterator[_Token]:
    """The tokens of `text[start:end]` in order. URLs and paths are whole tokens; the places are those in `text`."""
    part = text[start:end]
    urls = [match.span() for match in _URL.finditer(part)]
    words_and_paths = _masked(part, urls)
    paths = list(path_spans(words_and_paths))
    words = _masked(words_and_paths, paths)
    addresses = (_Token(_PATH, start + first, start + last) for first, last in merge(urls, paths))
    others = (_Token(_kind(match[0]), start + match.start(), start + match.end()) for match in _TOKEN.finditer(words))
    return merge(addresses, others, key=attrgetter("start"))


def _masked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += text[done:start], " " * (end - start)
        done = end
    return "".join([*parts, text[done:]])


def _kind(token: str) -> str:
    if _QUOTES.match(token):
        return _QUOTED
    if len(token) > _MAX_LITERAL:
        return _WORD
    for form, kind in _FORMS:
        if form.fullmatch(token):
            return kind
    return _KEBAB if "-" in token else _WORD
