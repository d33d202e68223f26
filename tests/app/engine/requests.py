"""Requests and drafts for the engine's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.engine.base import Commit, Request
from app.engine.generation import Generation
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=11)
PROMPT = (1, 2, 3, 4, 5)


def request(prompt: Sequence[int] = PROMPT, **fields: Any) -> Request:
    values: dict[str, Any] = {"id": "r", "tenant": "t", "sampling": GREEDY, "max_tokens": 40, **fields}
    return Request(prompt=tuple(prompt), **values)


def script(length: int | None = None) -> Script:
    return Script(ScriptVocabulary(), length=length)


async def read(generation: Generation, start: int = 0) -> list[int]:
    """All tokens, in order and without a gap."""
    tokens: list[int] = []
    async for event in generation.events(start):
        if isinstance(event, Commit):
            assert event.start == start + len(tokens)
            tokens += event.tokens
    return tokens


async def read_drafting(generation: Generation, drafts: Sequence[int], block: int = 4) -> list[int]:
    """Read to the end, and after each commit offer the next of `drafts` at its position, in an epoch of its own."""
    tokens: list[int] = []
    generation.offer(0, 0, drafts[:block])
    async for event in generation.events():
        if isinstance(event, Commit):
            tokens += event.tokens
            generation.offer(len(tokens), len(tokens), drafts[len(tokens) : len(tokens) + block])
    return tokens
