"""A language model without weights: its logits are hashes. Tests, load tests and simulations run engine and drafter on
it.

It behaves as a model must: logits are a function of the prompt, the position in the output and the previous token, so
behind a wrong draft they are different ones, and a program that mixes up rows, positions or streams gives other text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edge.openai.vocabulary import fingerprint
from edge.protocol.frames import Message

_CONTROL = ("<|end|>", "<|start|>", "<|pad|>")
_FREQUENT = "etaoinshrdlucmfw"
_PAIRS = tuple((a + b).encode() for a in _FREQUENT for b in _FREQUENT)[: 256 - len(_CONTROL)]
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz     ,.\n")


class ScriptVocabulary:
    """512 ids: every byte, three control tokens, and pairs of letters, so that texts have more than one spelling in
    ids.
    """

    def __init__(self) -> None:
        self.pieces: tuple[bytes, ...] = (
            *(bytes([byte]) for byte in range(256)),
            *(b"" for _ in _CONTROL),
            *_PAIRS,
        )
        self.size = len(self.pieces)
        self.end = 256
        self.start = 257
        self.ends = frozenset({self.end})
        self.fingerprint = fingerprint(self.pieces, self.ends)
        self._ids = {piece: i for i, piece in enumerate(self.pieces) if piece}

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        if special:
            for i, name in enumerate(_CONTROL):
                head, found, rest = text.partition(name)
                if found:
                    return [*self.encode(head, special=True), 256 + i, *self.encode(rest, special=True)]
        data, ids, at = text.encode(), [], 0
        while at < len(data):
            pair = self._ids.get(data[at : at + 2])
            ids.append(data[at] if pair is None else pair)
            at += len(self.pieces[ids[-1]])
        return ids

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def render(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [self.start, *self.encode(f"{message.role}\n{message.content}"), self.end]
        return [*ids, self.start, *self.encode("assistant\n")]


class Script:
    """What the model says. Two scripts with the same arguments agree on every machine."""

    def __init__(
        self, vocabulary: ScriptVocabulary, *, seed: int = 0, length: int | None = None, kept: int = 512
    ) -> None:
        """`length`: outputs end by themselves, with the end token as their `length`-th token; None: they go on for
        ever. `kept`: how many rows of logits are remembered.
        """
        self.vocabulary = vocabulary
        self.length = length
        self._seed = seed
        self._row = lru_cache(kept)(self._computed)
        plain = [len(piece) == 2 or piece[:1] in {bytes([b]) for b in _PLAIN} for piece in vocabulary.pieces]
        self._likely = np.where(plain, 0.0, -20.0)
        self._likely[256 : 256 + len(_CONTROL)] = -60.0

    def key(self, prompt: Sequence[int]) -> int:
        """64 bits that stand for a prompt."""
        return int.from_bytes(hashlib.blake2b(np.asarray(prompt, "<i8").tobytes(), digest_size=8).digest(), "little")

    def logits(self, prompt_key: int, position: int, previous: int) -> NDArray[np.float32]:
        """Logits, shape (size,), of the token at output `position` behind `previous` (at 0: the prompt's last).

        They can't be written to: streams of one prompt ask alike, and get the same.
        """
        return self._row(prompt_key, position, previous)

    def _computed(self, prompt_key: int, position: int, previous: int) -> NDArray[np.float32]:
        bits = np.random.Philox(key=[prompt_key, (self._seed << 44) ^ (position << 20) ^ previous])
        uniform = (bits.random_raw(self.vocabulary.size) >> np.uint64(12)) * 2.0**-52 + 2.0**-53
        logits = self._likely - 2.0 * np.log(-np.log(uniform))
        if self.length is not None and position + 1 >= self.length:
            logits[self.vocabulary.end] = 100.0
        result: NDArray[np.float32] = logits.astype(np.float32)
        result.flags.writeable = False
        return result

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first `count` output tokens at temperature 0, or up to the end token: a reference without an engine."""
        key, output = self.key(prompt), list[int]()
        while len(output) < count and self.vocabulary.end not in output[-1:]:
            previous = output[-1] if output else prompt[-1]
            output.append(int(np.argmax(self.logits(key, len(output), previous))))
        return output
