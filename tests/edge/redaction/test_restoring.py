from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.redaction.restoring import Restorer

ORIGINALS = {"[EMAIL_1]": "ada@example.org", "[NAME_1]": "Ada", "[NAME_10]": "Grace"}


def restored(pieces: list[str], *, in_code: bool = True) -> str:
    restorer = Restorer(ORIGINALS, in_code=in_code)
    return "".join([*(restorer.push(piece) for piece in pieces), restorer.end()])


@given(cuts=st.lists(st.integers(0, 80), max_size=30))
def test_wherever_tokens_end_the_text_is_the_same(cuts: list[int]) -> None:
    text = "Dear [NAME_1], write [to [EMAIL_1] or [NAME_10]; [x] [EMAIL_"
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(borders)]
    assert restored(pieces) == "Dear Ada, write [to ada@example.org or Grace; [x] [EMAIL_"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[NAME_1]'s and [NAME_1]s", "Ada's and Adas"),
        ("[name_1] [Name 1] [NAME-1]", "Ada Ada Ada"),
        (r"\[EMAIL\_1\]", "ada@example.org"),
        ("[NAME_2] [FOO_1] [1] [a]", "[NAME_2] [FOO_1] [1] [a]"),
    ],
)
def test_the_model_may_write_it_its_own_way(written: str, expected: str) -> None:
    assert restored(list(written)) == expected


def test_text_is_withheld_only_while_it_may_become_a_placeholder() -> None:
    restorer = Restorer(ORIGINALS)
    assert restorer.push("see [NA") == "see "
    assert restorer.push("ture]") == "[NAture]"
    assert restorer.push("[") == ""
    assert restorer.push(" 1") == "[ 1"


def test_in_code_blocks_placeholders_stay_if_asked() -> None:
    text = "For [NAME_1]:\n```python\nto = '[EMAIL_1]'\n```\nBye [NAME_1]"
    kept = "For Ada:\n```python\nto = '[EMAIL_1]'\n```\nBye Ada"
    assert restored(list(text), in_code=False) == kept
    assert "ada@example.org" in restored(list(text))
