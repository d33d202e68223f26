"""Tenants beside each other on vLLM: who gets the next place, and what they can learn of each other. And what a step is
spent on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.engine.generation import Generation
from app.engine.vllm_engine import VllmEngine
from bench.hybrid import Device, Drafts, Kind
from tests.vllm.questions import QUESTIONS, answers, ask, read, until

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]
STORY = QUESTIONS[1]


async def utility(engine: VllmEngine, name: str) -> Any:
    return await engine._llm.engine_core.call_utility_async(name)


async def test_one_stream_goes_before_the_many_of_another_tenant(engine: VllmEngine) -> None:
    def lengthy(i: int) -> dict[str, int]:  # they end one after the other, so places get free one by one
        return {"max_tokens": 10 + 4 * (i % 8), "min_tokens": 10 + 4 * (i % 8)}

    many = [engine.submit(ask(engine, STORY, tenant="many", **lengthy(i))) for i in range(24)]
    await asyncio.gather(*(until(generation, 1) for generation in many[:8]))
    one = engine.submit(ask(engine, STORY, tenant="one", max_tokens=4))
    await until(one, 1)
    assert sum(not generation.ledger.tokens for generation in many) >= 12  # of 16 that were there before it
    for generation in many:
        generation.cancel()
    await read(one)


async def test_a_prompt_is_remembered_for_its_own_tenant_only(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, cached = engine._take, list[int]()

    def note(stream: Any, output: Any) -> bool:
        cached.append(output.num_cached_tokens)
        return take(stream, output)

    monkeypatch.setattr(engine, "_take", note)
    question = "Which of these words is the odd one out, and why? " + " ".join(f"word{i}" for i in range(30))
    for tenant in ("reader", "reader", "stranger"):
        await read(engine.submit(ask(engine, question, tenant=tenant, max_tokens=1)))
    first, again, strangers = cached
    assert (first, strangers) == (0, 0)
    assert again >= 64


async def test_drafts_that_come_together_are_checked_in_one_step(engine: VllmEngine) -> None:
    references = await answers(engine)
    held: list[Generation] = [engine.submit(ask(engine, q, policy="hold", hold_s=60.0)) for q in QUESTIONS]
    await asyncio.gather(*(until(generation, 1) for generation in held))
    await utility(engine, "paceline_batches")
    for generation, reference in zip(held, references, strict=True):
        generation.offer(1, 1, reference[1:4])
    await asyncio.gather(*(until(generation, 5) for generation in held))
    assert await utility(engine, "paceline_batches") == [[len(held), 1]]
    for generation in held:
        generation.cancel()


@pytest.mark.parametrize("kind", ["right", "mostly", "wrong", "leaves"])
async def test_policy_auto_says_the_same_whatever_is_drafted(engine: VllmEngine, kind: Kind) -> None:
    references = await answers(engine)
    devices = [
        Device(Drafts(kind, tuple(reference), engine.vocabulary.size, seed=i), leave_at=8 if kind == "leaves" else None)
        for i, reference in enumerate(references)
    ]
    requests = [ask(engine, question, policy="auto", drafter=kind) for question in QUESTIONS]
    outputs = await asyncio.gather(
        *(device.run(engine, request) for device, request in zip(devices, requests, strict=True))
    )
    assert outputs == references
    usages = [device.usage for device in devices]
    assert all(usage.verified <= usage.drafted for usage in usages)
    if kind == "wrong":
        assert sum(usage.accepted for usage in usages) == 0


async def test_the_gateway_learns_what_a_step_takes(engine: VllmEngine) -> None:
    await answers(engine, (STORY,), max_tokens=4)
    load = engine.load()
    assert load.last_step_tokens == 1
    assert 0 < load.last_step_s < 60
