from __future__ import annotations

import pytest

from edge.redaction.checked import cards, emails, ibans, keys, national_ids, phones
from edge.redaction.names import addresses, names
from edge.redaction.spans import Recogniser, Span, resolve


def found(recognise: Recogniser, text: str) -> list[str]:
    return [text[span.start : span.end] for span in recognise(text)]


@pytest.mark.parametrize(
    ("recognise", "text", "expected"),
    [
        (emails, "to a.b+c@mail.example.org.", ["a.b+c@mail.example.org"]),
        (emails, "連絡先はtaro@example.jpです", ["taro@example.jp"]),
        (cards, "4111 1111 1111 1111 and 4111 1111 1111 1112", ["4111 1111 1111 1111"]),
        (cards, "9111111111111112", []),
        (ibans, "on DE89 3704 0044 0532 0130 00 please", ["DE89 3704 0044 0532 0130 00"]),
        (ibans, "DE89370400440532013000 und GB82 WEST 1234 5698 7654 32", None),
        (ibans, "DE88 3704 0044 0532 0130 00", []),
        (keys, "key='sk-abcdefghijklmnopqrstuvwx1'", ["sk-abcdefghijklmnopqrstuvwx1"]),
        (keys, "password is Tr0ub4dor&3xyz", ["Tr0ub4dor&3xyz"]),
        (keys, "the password is forgotten and the token is invalid", []),
        (keys, "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", None),
        (national_ids, "SSN 536-90-4399, 000-12-3456", ["536-90-4399"]),
        (national_ids, "DNI 54362315K, 54362315Z", ["54362315K"]),
        (national_ids, "Meine Steuer-ID ist 36574261809", ["36574261809"]),
        (national_ids, "Bestellung 36574261809", []),
        (phones("GB"), "ring 020 7946 0018 or +49 89 21800", None),
        (phones("DE"), "in Version 3.11.4", []),
    ],
)
def test_finds_what_the_checks_confirm_and_nothing_else(
    recognise: Recogniser, text: str, expected: list[str] | None
) -> None:
    hits = found(recognise, text)
    if expected is None:
        assert hits
    else:
        assert hits == expected


def test_two_accounts_in_a_row_are_two() -> None:
    text = "DE89370400440532013000 und GB82 WEST 1234 5698 7654 32"
    assert found(ibans, text) == ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My name is Ada Lovelace and", ["Ada Lovelace"]),
        ("Sehr geehrte Damen und Herren", []),
        ("Sehr geehrter Herr von Berg,", []),
        ("Frau Schmidt war da", ["Schmidt"]),
        ("je m'appelle Amélie de la Tour.", ["Amélie de la Tour"]),
        ("田中太郎さんへ", ["田中太郎"]),
        ("Ada Lovelace wrote it", []),
    ],
)
def test_names_are_found_by_their_cues_only(text: str, expected: list[str]) -> None:
    assert found(names, text) == expected


@pytest.mark.parametrize(
    "address",
    [
        "12 Maple Street",
        "Goethestr. 4, 10625 Berlin",
        "7 bis avenue Foch",
        "Calle de Alcalá, 12",
        "〒604-8571 京都府京都市1",
        "東京都新宿区西新宿2-8-1",
    ],
)
def test_addresses_by_the_form_of_their_country(address: str) -> None:
    assert found(addresses, f"({address})") == [address]


def test_of_overlapping_findings_the_longest_wins() -> None:
    inside, whole = Span(4, 9, "PHONE"), Span(0, 12, "IBAN")
    assert resolve([inside, whole, Span(20, 22, "ID")]) == [whole, Span(20, 22, "ID")]
