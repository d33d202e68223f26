"""What may be shown of an output, and when: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.openai.text import OutputText


def shown(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> list[str]:
    """What is shown behind each piece, and at the end."""
    text = OutputText(stop)
    out = []
    for piece in pieces:
        ended = text.push(piece)
        out.append(text.take())
        if ended:
            break
    return [*out, text.take(final=True)]


def test_a_character_split_over_tokens_is_shown_when_it_is_whole() -> None:
    assert shown(["é".encode()[:1], "é".encode()[1:]]) == ["", "é", ""]
    assert shown([b"a\xf0\x9f", b"\x9a", b"\xb4b"]) == ["a", "", "\U0001f6b4b", ""]
    assert shown(["€".encode()[:2], "€".encode()[2:] + b"1"]) == ["", "€1", ""]


def test_of_two_that_are_complete_together_the_longer_cuts() -> None:
    assert shown([b"abc"], ["c", "bc"]) == ["a", ""]


def test_a_character_that_never_becomes_whole_is_shown_broken_at_the_end() -> None:
    assert shown([b"a\xe2\x82"]) == ["a", "�"]


def test_bytes_that_are_no_utf8_are_not_withheld() -> None:
    assert shown([b"\xff", b"a"]) == ["�", "a", ""]
    assert shown([b"\x80\x80\x80\x80", b"a"]) == ["����", "a", ""]


@pytest.mark.parametrize("pieces", [[b"one STOP two"], [b"one S", b"TOP two"], [b"one ", b"ST", b"O", b"P two"]])
def test_a_stop_string_ends_the_text_before_it(pieces: list[bytes]) -> None:
    assert "".join(shown(pieces, ["STOP"])) == "one "


def test_what_may_begin_a_stop_string_is_withheld_until_it_does_not() -> None:
    assert shown([b"a ST", b"ART", b" S"], ["STOP"]) == ["a ", "START", " ", "S"]


def test_a_stop_string_that_overlaps_with_itself() -> None:
    assert shown([b"aab"], ["ab"]) == ["a", ""]
    assert shown([b"xaa", b"a", b"ab"], ["aaab"]) == ["x", "", "a", ""]
    assert "".join(shown([b"abab", b"ac"], ["abac"])) == "ab"


def test_of_two_stop_strings_the_one_that_is_complete_first_cuts() -> None:
    assert "".join(shown([b"abcd"], ["cd", "bc"])) == "a"
    assert "".join(shown([b"abcd"], ["bcx", "c"])) == "ab"
    assert "".join(shown([b"abcd"], ["abcd", "b"])) == "a"


def test_a_stop_string_inside_a_longer_one() -> None:
    assert "".join(shown([b"x12", b"3"], ["123", "2"])) == "x1"


def test_a_stop_string_of_many_bytes_a_character() -> None:
    fire = "\U0001f525".encode()
    assert shown([b"hot" + fire[:2], fire[2:]], ["\U0001f525"]) == ["hot", "", ""]
    assert shown([b"hot" + fire[:3], b"\xa6"], ["\U0001f525"]) == ["hot", "\U0001f526", ""]


def test_an_empty_stop_string_stops_nothing() -> None:
    assert "".join(shown([b"abc"], [""])) == "abc"


def test_kept_bytes_counts_bytes_of_the_whole_text() -> None:
    text = OutputText(["END"])
    for piece in ("é".encode(), b"x", b"E", b"ND tail"):
        text.push(piece)
        text.take()
    assert text.kept_bytes == 3
    assert text.push(b"more")
    assert text.take(final=True) == ""


def test_a_cut_from_outside_shows_what_lies_before_it() -> None:
    text = OutputText()
    text.push(b"one STOP")
    text.cut(4)
    assert text.take() == "one "
    assert text.take(final=True) == ""


def test_a_cut_behind_what_was_shown_takes_nothing_back() -> None:
    text = OutputText()
    text.push(b"one two")
    assert text.take() == "one two"
    text.push(b" three")
    text.cut(4)
    assert text.take(final=True) == ""


def test_a_cut_past_the_end_keeps_all() -> None:
    text = OutputText()
    text.push(b"one")
    text.cut(99)
    assert text.take(final=True) == "one"


def test_pieces_that_must_not_stop() -> None:
    """min_tokens: a stop string before it doesn't count."""
    text = OutputText(["b"])
    assert not text.push(b"ab", stoppable=False)
    assert text.kept_bytes is None
    assert text.push(b"c b")
    assert text.kept_bytes == 4


def test_total_bytes_counts_what_was_pushed() -> None:
    text = OutputText()
    text.push(b"ab\xc3")
    text.take()
    assert text.total_bytes == 3


alphabet = st.text("abé\U0001f525", max_size=14)
stops = st.lists(st.text("abé", min_size=1, max_size=3), max_size=3)


@given(alphabet, stops, st.data())
def test_the_pieces_do_not_matter(whole: str, stop: list[str], data: st.DataObject) -> None:
    """However the bytes are cut into tokens, the same text is shown, and all that was shown stays."""
    raw = whole.encode()
    borders = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    pieces = [raw[a:b] for a, b in zip([0, *borders], [*borders, len(raw)], strict=True)]
    expected = earliest_completed(raw, [s.encode() for s in stop])
    out = shown(pieces, stop)
    assert "".join(out) == expected.decode()
    assert all("�" not in part for part in out)


def earliest_completed(raw: bytes, stop: list[bytes]) -> bytes:
    """The text cut at the stop string that is complete first, as if it came byte by byte; of several, the longest."""
    for end in range(1, len(raw) + 1):
        begins = [end - len(s) for s in stop if raw[:end].endswith(s)]
        if begins:
            return raw[: min(begins)]
    return raw
