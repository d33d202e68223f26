"""A tokenizer whose tokens are bytes: the one that agrees least with a real one."""

from __future__ import annotations

from collections.abc import Sequence

from edge.openai.vocabulary import fingerprint
from edge.protocol.frames import Message

END = 256


class ByteVocabulary:
    def __init__(self) -> None:
        self.size = 257
        self.ends = frozenset({END})
        self.fingerprint = fingerprint([self.piece(token) for token in range(self.size)], self.ends)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        ids = list[int]()
        for number, part in enumerate(text.split("<|end|>") if special else [text]):
            ids += [END] * (number > 0) + list(part.encode())
        return ids

    def piece(self, token: int) -> bytes:
        return b"" if token == END else bytes([token])

    def render(self, messages: Sequence[Message]) -> list[int]:
        return self.encode("".join(f"{message.role}: {message.content}\n" for message in messages))
