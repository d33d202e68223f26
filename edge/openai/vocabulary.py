"""What both sides need to know of a tokenizer, whichever library provides it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from edge.protocol.frames import Message


class Vocabulary(Protocol):
    """A tokenizer with its chat template. Thread-safe."""

    size: int
    """Number of token ids."""
    fingerprint: str
    ends: frozenset[int]
    """Ids that end an output (end of text, end of turn)."""

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`. With `special`, markup such as <|im_start|> becomes its control token."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text; control tokens add none. May be part of a UTF-8 character."""
        ...

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the templated conversation, up to where the assistant's answer begins."""
        ...


def fingerprint(pieces: Sequence[bytes], ends: frozenset[int]) -> str:
    """SHA-256 (hex) over the number of ids, each id's bytes behind their length, and the end ids.

    Lengths are 4-byte big-endian. Ids behind the last one that has bytes or ends an output don't count: models of one
    family pad their vocabularies to different sizes. Two vocabularies with the same fingerprint mean the same text by
    the same ids.
    """
    count = len(pieces)
    while count and not pieces[count - 1] and count - 1 not in ends:
        count -= 1
    digest = hashlib.sha256(count.to_bytes(4, "big"))
    for piece in pieces[:count]:
        digest.update(len(piece).to_bytes(4, "big"))
        digest.update(piece)
    for token in sorted(ends):
        digest.update(token.to_bytes(4, "big"))
    return digest.hexdigest()
