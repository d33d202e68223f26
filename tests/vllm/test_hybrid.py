"""Whatever a device drafts, and whenever it comes, vLLM says what it says alone."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from app.engine.vllm_engine import VllmEngine
from bench.hybrid import KINDS, Device, Drafts, Kind
from edge.protocol.frames import Policy
from tests.vllm.questions import QUESTIONS, LateDevice, answers, ask

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]


def devices(
    engine: VllmEngine, references: list[list[int]], kind: Kind | Literal["late"], policy: Policy
) -> list[Device]:
    made: list[Device] = []
    for i, reference in enumerate(references):
        drafts = Drafts("mostly" if kind == "late" else kind, tuple(reference), engine.vocabulary.size, seed=i)
        made.append(LateDevice(drafts) if kind == "late" else Device(drafts, leave_at=8 if kind == "leaves" else None))
    return made


@pytest.mark.parametrize("policy", ["eager", "hold"])
@pytest.mark.parametrize("kind", [*KINDS, "late"])
async def test_eight_streams_together_say_what_they_say_without_drafts(
    engine: VllmEngine, kind: Kind | Literal["late"], policy: Policy
) -> None:
    references = await answers(engine)
    made = devices(engine, references, kind, policy)
    requests = [ask(engine, question, policy=policy, hold_s=0.3) for question in QUESTIONS]
    outputs = await asyncio.gather(
        *(device.run(engine, request) for device, request in zip(made, requests, strict=True))
    )
    assert outputs == references
    usages = [device.usage for device in made]
    if kind == "none":
        assert all(usage.drafted == usage.verified == 0 for usage in usages)
        assert all(usage.steps == usage.completion for usage in usages)
    if kind == "right":
        assert all(usage.verified == usage.accepted > 0 for usage in usages)
        assert all(usage.steps < usage.completion / 2 for usage in usages)
    if kind == "wrong":
        assert all(usage.accepted == 0 for usage in usages)
    if kind != "none" and policy == "hold":  # the eager cloud may be a step ahead of every draft that is wrong
        assert sum(usage.verified for usage in usages) > 0


async def test_a_right_draft_saves_steps_and_is_counted(engine: VllmEngine) -> None:
    [reference] = await answers(engine, QUESTIONS[1:2])
    device = Device(Drafts("right", tuple(reference), engine.vocabulary.size), window=16)
    assert await device.run(engine, ask(engine, QUESTIONS[1], policy="hold")) == reference
    usage = device.usage
    assert usage.completion == len(reference) == 32
    assert usage.accepted + usage.matched + usage.steps >= usage.completion
    assert usage.steps <= 8
