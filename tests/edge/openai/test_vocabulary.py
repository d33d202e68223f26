from __future__ import annotations

import pytest

from edge.openai.vocabulary import fingerprint

PIECES = [b"a", b"b", b"", b"c"]
ENDS = frozenset({2})


@pytest.mark.parametrize("padding", [1, 100])
def test_a_padded_vocabulary_is_the_same(padding: int) -> None:
    assert fingerprint([*PIECES, *[b""] * padding], ENDS) == fingerprint(PIECES, ENDS)


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([*PIECES, b"d"], ENDS),
        ([*PIECES, b""], frozenset({2, 4})),
        ([b"a", b"b", b"c"], ENDS),
        ([b"ab", b"", b"", b"c"], ENDS),
        (PIECES, frozenset()),
    ],
)
def test_any_other_difference_counts(pieces: list[bytes], ends: frozenset[int]) -> None:
    assert fingerprint(pieces, ends) != fingerprint(PIECES, ENDS)
