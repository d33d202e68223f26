"""What the vLLM tests ask, and a device whose drafts take a while to arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.engine.base import Commit, Request
from app.engine.generation import Generation
from app.engine.vllm_engine import VllmEngine
from bench.hybrid import Device
from edge.protocol.drafting import DraftingSession
from edge.protocol.frames import Message, Sampling

GREEDY = Sampling(temperature=0.0, seed=0)
QUESTIONS = (
    "What is a paceline?",
    "Write a story about a dragon who lived by the sea.",
    "Explain TCP slow start in detail.",
    "List ten fruits.",
    "How do bees navigate?",
    "Compose a poem on rain.",
    "What is entropy?",
    "Translate hello to French, German and Spanish.",
)
_count = iter(range(10**9))


def ask(engine: VllmEngine, question: str, **fields: Any) -> Request:
    values: dict[str, Any] = {"tenant": "t", "sampling": GREEDY, "max_tokens": 32, **fields}
    prompt = tuple(engine.vocabulary.render([Message("user", question)]))
    return Request(id=f"r{next(_count)}", prompt=prompt, **values)


async def read(generation: Generation, start: int = 0) -> list[int]:
    """All tokens, in order and without a gap."""
    tokens: list[int] = []
    async for event in generation.events(start):
        if isinstance(event, Commit):
            assert event.start == start + len(tokens)
            tokens += event.tokens
    return tokens


async def answers(engine: VllmEngine, questions: Sequence[str] = QUESTIONS, **fields: Any) -> list[list[int]]:
    """All questions together, without drafts."""
    return list(await asyncio.gather(*(read(engine.submit(ask(engine, q, **fields))) for q in questions)))


async def until(generation: Generation, length: int) -> None:
    """Wait for so many tokens of output."""
    async for event in generation.events():
        if isinstance(event, Commit) and event.start + len(event.tokens) >= length:
            return


@dataclass(slots=True)
class LateDevice(Device):
    """Its drafts arrive in order, but up to `late_s` after they were made."""

    late_s: float = 0.2
    random: Random = field(default_factory=lambda: Random(7))  # noqa: S311
    _on_their_way: deque[tuple[Generation, int, int, tuple[int, ...]]] = field(default_factory=deque)

    def _draft(self, session: DraftingSession, generation: Generation) -> None:
        while session.wants_draft and (token := self.drafts.token(session.end)) is not None:
            session.draft(token)
        block = session.next_block(flush=True)
        if block is not None:
            self._on_their_way.append((generation, block.epoch, block.start, block.tokens))
            asyncio.get_running_loop().call_later(self.random.uniform(0, self.late_s), self._arrive)

    def _arrive(self) -> None:
        generation, epoch, start, tokens = self._on_their_way.popleft()
        generation.offer(epoch, start, tokens)
