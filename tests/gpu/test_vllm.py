"""The vLLM engine on a GPU: the same promises as on a CPU, by the same code (make test-vllm on a machine with one).

Nobody has run these yet: until then README says "GPU untested". How fast it is there: `python -m bench vllm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Literal

import pytest
import pytest_asyncio

from app.engine.vllm_engine import VllmEngine
from bench.hybrid import Kind
from edge.protocol.frames import Policy
from tests.vllm.conftest import MODEL, vllm_engine
from tests.vllm.questions import QUESTIONS, answers, ask, read
from tests.vllm.test_hybrid import devices


def _missing() -> str:
    if find_spec("torch") is None or find_spec("vllm") is None:
        return "vLLM isn't installed here: make install-vllm"
    import torch

    if not torch.cuda.is_available():
        return "there is no GPU here"
    return "" if (MODEL / "config.json").is_file() else f"no {MODEL}: python -m bench.hf_model"


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(bool(_missing()), reason=_missing() or "a GPU is there"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[False, True], ids=["step by step", "a step ahead"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[VllmEngine]:
    engine = vllm_engine(ahead=request.param)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.mark.parametrize("policy", ["eager", "hold"])
@pytest.mark.parametrize("kind", ["right", "mostly", "wrong", "none", "late"])
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


async def test_drafts_are_checked(engine: VllmEngine) -> None:
    [reference] = await answers(engine, QUESTIONS[1:2], max_tokens=60)
    generation = engine.submit(ask(engine, QUESTIONS[1], max_tokens=60))
    generation.offer(0, 0, reference)
    assert await read(generation) == reference
    assert generation.usage().steps < 30


async def test_the_draft_scheduler_is_what_schedules(engine: VllmEngine) -> None:
    assert await engine._llm.engine_core.call_utility_async("paceline_start") == "DraftScheduler"
