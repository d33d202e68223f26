"""Where in a text personal data was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Kind = Literal["EMAIL", "PHONE", "IBAN", "CARD", "ID", "KEY", "NAME", "ADDRESS"]


class Span(NamedTuple):
    """`text[start:end]` is personal data of this kind."""

    start: int
    end: int
    kind: Kind


Recogniser = Callable[[str], Iterable[Span]]


def resolve(spans: Iterable[Span]) -> list[Span]:
    """Spans in order without overlaps: the longer one wins, of equals the one that was found first."""
    taken: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start - s.end):
        if all(span.end <= other.start or other.end <= span.start for other in taken):
            taken.append(span)
    return sorted(taken)
