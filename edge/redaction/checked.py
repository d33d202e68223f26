"""Recognisers that can be right for a reason: a checksum, a numbering plan, or the shape that an issuer gives its keys.

A number alone proves little: one in ten of all numbers passes a check digit. So national ids that are digits and
nothing else also need a word near by that says what they are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import phonenumbers
from stdnum import iban, luhn
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.jp import in_ as my_number
from stdnum.us import ssn

from edge.redaction.spans import Recogniser, Span

# Letters of any script border on e-mail addresses and numbers in Japanese text, so \b would miss them.
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", re.ASCII)
_CARD: Final = re.compile(r"(?<![\dA-Za-z])\d(?:[ -]?\d){12,18}(?![\dA-Za-z])", re.ASCII)
_IBAN: Final = re.compile(r"(?<![0-9A-Za-z])(?=([A-Za-z]{2}\d{2}(?:[ -]?[0-9A-Za-z]){11,30}))", re.ASCII)
"""What may be one, and may run on into the words behind it; found at each place anew, since it may swallow another."""
_CARD_PREFIX: Final = re.compile(r"4|5[1-5]|2[2-7]|3[0-9]|6(?:011|5|4[4-9])|62")
"""Visa, Mastercard, American Express, Diners, JCB, Discover, UnionPay (ISO/IEC 7812)."""

_KEYS: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-[A-Za-z0-9_-]{20,}"  # OpenAI and those who copy it
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[0-9A-Za-z_-]{35}"
    r"|[rsp]k_(?:live|test)_[0-9A-Za-z]{16,}"
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JWT, RFC 7519
    r")(?![A-Za-z0-9_-])",
    re.ASCII,
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_ASSIGNED: Final = re.compile(
    r"(?i)(?:password|passwd|passwort|kennwort|mot de passe|contraseña|パスワード|secret|token|api[ _-]?key)"
    r"(?:\s+(?:is|ist|est|es|lautet))?\s*[:=はー：]?\s*[\"'`「]?([!-~]{8,})"
)
"""A secret that is called one."""
_SECRET_BITS: Final = 2.5
"""Shannon entropy, bits a character, above which what is called a secret is one and not a word."""

_CONTEXT: Final = 48
"""Characters before a number in which a word can say what it is."""


class _Id:
    """`cue`: what must be said shortly before, where the check proves too little."""

    def __init__(self, pattern: str, valid: Callable[[str], bool], cue: str = "") -> None:
        self.pattern = re.compile(rf"(?<![0-9A-Za-z]){pattern}(?![0-9A-Za-z])", re.ASCII)
        self.valid = valid
        self.cue = re.compile(cue, re.IGNORECASE) if cue else None


_IDS: Final = (
    _Id(r"\d{3}-\d{2}-\d{4}", ssn.is_valid),
    _Id(r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]", lambda text: True),
    _Id(r"\d{3}[ -]?\d{3}[ -]?\d{4}", nhs.is_valid, r"nhs"),
    _Id(r"\d{2} ?\d{3} ?\d{3} ?\d{3}", idnr.is_valid, r"steuer|idnr|identifikationsnummer|\btin\b"),
    _Id(r"[12] ?\d{2} ?[0-1]\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}", nir.is_valid),
    _Id(r"\d{8}[ -]?[A-Za-z]", dni.is_valid),
    _Id(r"[XYZxyz][ -]?\d{7}[ -]?[A-Za-z]", nie.is_valid),
    _Id(r"\d{4}[ -]?\d{4}[ -]?\d{4}", my_number.is_valid, r"マイナンバー|個人番号|my ?number"),
)
"""US social security, UK national insurance (no check digit, but a narrow shape) and NHS, German tax id, French NIR,
Spanish DNI and NIE, Japanese My Number."""


def emails(text: str) -> Iterator[Span]:
    for match in _EMAIL.finditer(text):
        yield Span(*match.span(), "EMAIL")


def cards(text: str) -> Iterator[Span]:
    """Payment cards: an issuer's prefix, and Luhn's check digit (ISO/IEC 7812-1)."""
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        if _CARD_PREFIX.match(digits) and luhn.is_valid(digits):
            yield Span(*match.span(), "CARD")


def ibans(text: str) -> Iterator[Span]:
    """Account numbers: length and form of the country, and mod 97 (ISO 13616)."""
    for match in _IBAN.finditer(text):
        start, longest = match.span(1)
        for end in range(longest, start + 14, -1):
            whole = text[end - 1] not in " -" and not text[end : end + 1].isalnum()
            if whole and iban.is_valid(text[start:end]):
                yield Span(start, end, "IBAN")
                break


def keys(text: str) -> Iterator[Span]:
    """Credentials: keys by their issuers' shapes, private keys in PEM, and what is called a password and looks it."""
    for pattern in (_KEYS, _PRIVATE_KEY):
        for match in pattern.finditer(text):
            yield Span(*match.span(), "KEY")
    for match in _ASSIGNED.finditer(text):
        value = match.group(1).rstrip("\"'`.,;)")
        if _entropy(value) > _SECRET_BITS and re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value):
            yield Span(match.start(1), match.start(1) + len(value), "KEY")


def national_ids(text: str) -> Iterator[Span]:
    for kind in _IDS:
        for match in kind.pattern.finditer(text):
            before = text[max(0, match.start() - _CONTEXT) : match.start()]
            if kind.valid(match.group()) and (kind.cue is None or kind.cue.search(before)):
                yield Span(*match.span(), "ID")


def phones(*regions: str) -> Recogniser:
    """Telephone numbers that the numbering plans allow: with a country code anywhere, without one in these regions."""

    def recognise(text: str) -> Iterator[Span]:
        for region in regions:
            for match in phonenumbers.PhoneNumberMatcher(text, region, phonenumbers.Leniency.VALID):
                yield Span(match.start, match.end, "PHONE")

    return recognise


def _entropy(text: str) -> float:
    """Shannon's, bits a character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
