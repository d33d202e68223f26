"""Names that stand without a cue, by a gazetteer of given names and by the company they keep. No language model.

In texts that tell names by capitals: a run of capitalised words, particles inside, cut at words that are no names; the
piece is a name from its first known given name on, or as a whole if it is two words or more. A word alone must be a
given name that is nothing else. In lower case a known given name counts, with the word behind it.
Japanese: a known family name with one to three characters behind it, where a particle or a mark follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, zip_longest
from typing import Final

from edge.redaction.gazetteer import (
    ALSO_WORDS,
    FUNCTION,
    GIVEN,
    JAPANESE_FAMILY,
    NO_NAME,
    NOT_JAPANESE_NAMES,
    PARTICLES,
    STARTERS,
)
from edge.redaction.spans import Span

_WORD: Final = re.compile(r"[^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_]))*\.?")
_POSSESSIVE: Final = re.compile(r"['’]s$")
_LOWER: Final = frozenset(name.lower() for name in GIVEN - ALSO_WORDS)
_GERMAN_NOUN: Final = re.compile(
    r"(?:ung|heit|keit|schaft|tion|ität|nis|tum|ling|bank|bahn|haus|hof|platz|straße|brief|termin|zeit|plan)(?:en|s)?$"
)
_MOST_WORDS: Final = 5

_FAMILY: Final = "|".join(sorted(JAPANESE_FAMILY, key=len, reverse=True))
_AFTER: Final = r"(?=[がはをにのとへもでや、。,.!?！？：:\s<(（]|さん|様|氏|くん|君|ちゃん|から|まで|より|$)"
_JAPANESE: Final = (
    re.compile(rf"(?:{_FAMILY})(?!{'|'.join(NOT_JAPANESE_NAMES)})[一-龯々ヶ]{{1,3}}{_AFTER}"),
    re.compile(rf"(?<![一-龯々])(?:{_FAMILY})[ぁ-んァ-ヶー]{{2,4}}{_AFTER}"),
    re.compile(rf"(?<![一-龯々])(?:{_FAMILY})(?=[がはをにと、]|さん|様|氏)"),
    re.compile(r"[ァ-ヶー]{2,}・[ァ-ヶー]{2,}(?:・[ァ-ヶー]{2,})?"),
)


def uncued_names(text: str) -> Iterator[Span]:
    for run in _runs(text):
        for piece in _pieces(run):
            yield from _name(text, piece)
    yield from _in_lower_case(text)
    for pattern in _JAPANESE:
        for match in pattern.finditer(text):
            yield Span(*match.span(), "NAME")


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Capitalised words with single spaces between, and the particles between two of them."""
    run: list[re.Match[str]] = []
    end = -1
    for word in _WORD.finditer(text):
        joined = text[end : word.start()] == " " and not (run and _ends_sentence(run[-1][0]))
        if run and not joined:
            yield run
            run = []
        if word[0][0].isupper() or (run and word[0] in PARTICLES):
            run.append(word)
        elif run:
            yield run
            run = []
        end = word.end()
    if run:
        yield run


def _ends_sentence(word: str) -> bool:
    """Whether the full stop behind it is one, and not an abbreviation's or an initial's."""
    return word.endswith(".") and len(word) > 3


def _bare(word: str) -> str:
    return _POSSESSIVE.sub("", word.rstrip("."))


def _pieces(run: list[re.Match[str]]) -> Iterator[list[re.Match[str]]]:
    """The run without words that are no names, and without particles at either end."""
    for outside, words in groupby(run, key=lambda word: _is_no_name(word[0])):
        piece = list(words)
        while piece and piece[0][0] in PARTICLES:
            del piece[0]
        while piece and piece[-1][0] in PARTICLES:
            del piece[-1]
        if piece and not outside:
            yield piece


def _is_no_name(word: str) -> bool:
    """Acronyms too; but `J.` is an initial."""
    bare = _bare(word)
    return bare in NO_NAME or bare in STARTERS or (bare.isupper() and not word.endswith("."))


def _name(text: str, piece: list[re.Match[str]]) -> Iterator[Span]:
    words = [_bare(word[0]) for word in piece]
    known = next((i for i, word in enumerate(words) if _given(word)), None)
    alone = len(words) == 1
    if known is not None and not (alone and words[0] in ALSO_WORDS):
        yield _span(piece[known:])
    elif not alone and len(words) <= _MOST_WORDS and not any(map(_GERMAN_NOUN.search, words)):
        yield _span(piece)


def _given(word: str) -> bool:
    return word in GIVEN or word in ALSO_WORDS or word.split("-")[0] in GIVEN


def _span(piece: list[re.Match[str]]) -> Span:
    last = piece[-1]
    return Span(piece[0].start(), last.start() + len(_bare(last[0])), "NAME")


def _in_lower_case(text: str) -> Iterator[Span]:
    words = [word for word in _WORD.finditer(text) if word[0][0].islower() or word[0] in _LOWER]
    for word, following in zip_longest(words, words[1:]):
        if word[0] not in _LOWER:
            continue
        end = word.end()
        if following is not None and text[end : following.start()] == " " and following[0] not in FUNCTION:
            end = following.start() + len(_bare(following[0]))
        yield Span(word.start(), end, "NAME")
