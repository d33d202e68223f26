"""Streams without a prompt, on the real loop: they wait for drafts and take what is plausible."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.base import Request
from app.engine.generation import Generation
from app.engine.scripted import ScriptedEngine
from app.engine.vllm_reader import refuse
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary
from tests.app.serving import until

SURE, SECOND, WRONG = 65, 66, 67


class TwoTokens(Script):
    """Everywhere two tokens are plausible, and one is the likelier."""

    def logits(self, key: int, position: int, previous: int) -> NDArray[np.float32]:
        row = np.full(self.vocabulary.size, -20, np.float32)
        row[[SURE, SECOND]] = 2, 1
        return row


def request(max_tokens: int = 6) -> Request:
    return Request(
        id="s", tenant="t", prompt=(1, 2, 3), sampling=Sampling(temperature=0), max_tokens=max_tokens, rule="typical"
    )


async def ended(generation: Generation) -> list[int]:
    async with asyncio.timeout(10):
        async for _ in generation.events(0):
            pass
    return list(generation.ledger.tokens)


async def test_plausible_drafts_pass_and_others_are_corrected() -> None:
    engine = ScriptedEngine(script=TwoTokens(ScriptVocabulary()))
    await engine.start()
    try:
        generation = engine.submit(request())
        generation.offer(1, 0, [SECOND, SURE, WRONG, SECOND])
        await until(lambda: len(generation.ledger) == 3)
        assert generation.ledger.tokens == [SECOND, SURE, SURE], "the third is the target's own"
        generation.offer(2, 3, [SECOND])
        await until(lambda: len(generation.ledger) == 4)
        generation.offer(2, 4, [SECOND, SECOND, SECOND])
        assert await ended(generation) == [SECOND, SURE, SURE, SECOND, SECOND, SECOND]
        assert generation.finished is not None
        assert generation.finished.reason == "length"
        assert generation.finished.usage.accepted == 5
    finally:
        await engine.stop()


async def test_without_drafts_it_waits_and_costs_no_step() -> None:
    engine = ScriptedEngine(script=TwoTokens(ScriptVocabulary()))
    await engine.start()
    try:
        waiting = engine.submit(request())
        other = engine.submit(Request(id="o", tenant="t", prompt=(1,), sampling=Sampling(temperature=0), max_tokens=30))
        assert len(await ended(other)) == 30
        assert len(waiting.ledger) == 0
        waiting.cancel()
        assert await ended(waiting) == []
    finally:
        await engine.stop()


def test_vllm_refuses_it() -> None:
    with pytest.raises(InvalidRequest, match=r"llama\.cpp engine"):
        refuse(request())
