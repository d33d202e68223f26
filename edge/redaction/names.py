"""Names and addresses by their cues: `my name is`, `Frau`, `rue`, `さん`. For names without one, see uncued.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from edge.redaction.spans import Span

_WORD: Final = r"[A-ZÀ-ÖØ-ÝŞ][\w'’-]+"
_NAME: Final = rf"{_WORD}(?: (?:(?:de|del|la|von|van|le|du|da|zu) )*{_WORD}){{0,3}}"
_CUES: Final = (
    r"(?<!\w)(?i:my name is|I am|I'm|this is|signed,|regards,|Dear|mein Name ist|ich heiße|ich bin|Liebe|Lieber|Grüße,"
    r"|je m'appelle|je suis|mon nom est|Cordialement,|Chère|Cher|me llamo|mi nombre es|Saludos,|Querida|Querido)"
)
_TITLES: Final = (
    r"(?<!\w)(?:Mr|Mrs|Ms|Dr|Prof|Herr|Herrn|Frau|M\.|Mme|Mlle|Monsieur|Madame"
    r"|[Ss]eñor|[Ss]eñora|Sr|Sra|[Dd]oña|[Dd]on)\.?"
)
_NAMES: Final = re.compile(rf"(?:{_CUES}\s+(?:{_TITLES}\s+)*|(?:{_TITLES}\s+)+)({_NAME})")
_NOBODY: Final = frozenset(
    (
        *("Sir", "Madam", "Team", "All", "Everyone", "Customer", "The", "A", "An", "Sorry", "Hiring", "Manager"),
        *("Damen", "Herren", "Kolleginnen", "Kollegen", "Monsieur", "Madame", "Señor", "Señora"),
    )
)
"""What follows a cue and is no name."""
_JAPANESE_NAME: Final = r"[一-龯]{2,5}|[ァ-ヶー]{2,8}(?:・[ァ-ヶー]{2,8})?"
_JAPANESE: Final = re.compile(rf"({_JAPANESE_NAME})(?=さん|様|氏|くん|ちゃん)|(?<=私は)({_JAPANESE_NAME})")

_ADDRESSES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:Flat \d+, )?\d{{1,5}}[a-z]? (?:{_WORD} ){{1,3}}"
        r"(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court|Way|Close)(?!\w)\.?",
        r"(?:(?:Am|An der|Auf der|Im|In der|Unter den) )?[A-ZÄÖÜ][\wäöüß-]*"
        r"(?:straße|strasse|str\.|weg|gasse|allee|platz|ring|damm|ufer) \d{1,4}[a-z]?(?!\d)"
        r"(?:, \d{5} [A-ZÄÖÜ][\wäöüß-]+)?",
        r"\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|place|chemin|impasse|allée|quai)"
        rf"(?: (?:de|du|des|la|le|les))*[ '](?:[ld]')?{_WORD}(?:[ -]{_WORD})*(?:, \d{{5}} {_WORD})?",
        rf"(?:[Cc]alle|[Aa]venida|[Pp]laza|[Pp]aseo|[Cc]arrera)(?: (?:de|del|la|las|los|el))* {_WORD}(?: {_WORD})*,? "
        rf"(?:n\.?º ?)?\d{{1,4}}(?!\d)(?:, \d{{5}} {_WORD})?",
        r"(?:〒\d{3}-\d{4} ?)?(?:東京都|北海道|(?:京都|大阪)府|(?:神奈川|和歌山|鹿児島|[一-龯]{2})県)"
        r"[一-龯ぁ-んァ-ヶ]{1,12}[0-9０-９]+(?:[-−丁目番地号0-9０-９]+)?",
    )
)
"""English, German, French, Spanish, Japanese."""


def names(text: str) -> Iterator[Span]:
    for match in _NAMES.finditer(text):
        if match.group(1).split()[0] not in _NOBODY:
            yield Span(*match.span(1), "NAME")
    for match in _JAPANESE.finditer(text):
        yield Span(*match.span(), "NAME")


def addresses(text: str) -> Iterator[Span]:
    for pattern in _ADDRESSES:
        for match in pattern.finditer(text):
            yield Span(*match.span(), "ADDRESS")
