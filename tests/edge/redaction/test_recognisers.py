from __future__ import annotations

import pytest

from edge.redaction.checked import cards, emails, ibans, keys, national_ids, phones
from edge.redaction.names import addresses, names
from edge.redaction.spans import Recogniser, Span, resolve
from edge.redaction.uncued import uncued_names


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
        ("Frau Dr. Meyer war da", ["Meyer"]),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yesterday Margaret Thornton told us.", ["Margaret Thornton"]),
        ("Can Bob do it? Anna's boss can.", ["Bob", "Anna"]),
        ("la semaine dernière Aurore Petitjean est venue", ["Aurore Petitjean"]),
        ("Hablé con Joaquina de la Piedra ayer.", ["Joaquina de la Piedra"]),
        ("Die Versicherung hat Dr. Meyer angerufen, Lothar fehlte.", ["Lothar"]),
        ("Mr J. Smith wrote", ["J. Smith"]),
        ("call peter schmidt tomorrow", ["peter schmidt"]),
        ("remind anna about it", ["anna"]),
        ("高橋健一が来た。東京駅で山口県の話", ["高橋健一"]),
        ("ジャック・デュポンに会う", ["ジャック・デュポン"]),
    ],
)
def test_names_without_a_cue(text: str, expected: list[str]) -> None:
    assert found(uncued_names, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Das ist der Potsdamer Platz in Berlin.",
        "May I ask Will?",
        "A trip to New Orleans and Salt Lake City",
        "The United Nations met in Geneva on Monday.",
        "la Banque de France et le Conseil",
        "山本工業と大阪城",
    ],
)
def test_what_is_capitalised_and_no_name(text: str) -> None:
    assert found(uncued_names, text) == []


def test_a_long_text_takes_time_in_proportion() -> None:
    """No pattern here may run away: half a megabyte of capitals, and of characters, is gone through once."""
    for text in ("Aa Bb " * 80_000, "田" * 200_000, "a" * 200_000, "de la " * 80_000):
        list(uncued_names(text))
