"""vLLM's engine process is killed: all that depends on it says so, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil
import pytest

from app.engine.base import Request
from app.engine.vllm_engine import VllmEngine
from edge.openai.hf_vocabulary import open_vocabulary
from edge.protocol.errors import EngineFailed
from edge.protocol.frames import Message
from tests.app.serving import until as true
from tests.vllm.conftest import MODEL, vllm_engine
from tests.vllm.questions import GREEDY, ask, read, until

if TYPE_CHECKING:
    from app.engine.ray_pool import RayPool

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]


async def test_streams_end_with_an_error_and_nothing_new_is_taken() -> None:
    engine = vllm_engine(streams=2)
    await engine.start()
    try:
        running = engine.submit(ask(engine, "Write a story about a dragon who lived by the sea.", max_tokens=200))
        held = engine.submit(ask(engine, "What is entropy?", max_tokens=200, policy="hold", hold_s=60.0))
        await until(running, 1)
        await until(held, 1)
        assert engine.failure() is None
        os.kill(_process(engine).pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            await asyncio.gather(read(running), read(held))
        for generation in (running, held):
            assert generation.finished is not None
            assert (generation.finished.reason, generation.finished.error) == ("error", EngineFailed.code)
        assert engine.failure() is not None
        with pytest.raises(EngineFailed):
            engine.submit(ask(engine, "What is entropy?"))
    finally:
        await engine.stop()
    assert engine.load().running == 0


@pytest.mark.ray
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray isn't installed")
async def test_with_ray_its_streams_go_on_at_another_replica() -> None:
    """Two replicas, each with a vLLM; of one, the engine's process is killed, not the replica's."""
    from app.engine.ray_pool import RayPool

    build, vocabulary = partial(vllm_engine, streams=4), partial(open_vocabulary, str(MODEL))
    pool = RayPool(build, vocabulary, replicas=2, cpus=0.0, streams=4)
    await pool.start()
    try:
        questions = ("Write a story about a dragon who lived by the sea.", "Explain TCP slow start in detail.") * 2
        references = await asyncio.gather(*(read(pool.submit(_ask(pool, question))) for question in questions))
        generations = [pool.submit(_ask(pool, question)) for question in questions]
        readers = [asyncio.ensure_future(read(generation)) for generation in generations]
        await asyncio.gather(*(until(generation, 4) for generation in generations))
        os.kill(_engine_of(pool.replicas()[0].pid), signal.SIGKILL)
        await true(lambda: bool(pool.moved), timeout_s=5)
        assert await asyncio.gather(*readers) == references
        assert pool.moved == 2
    finally:
        await pool.stop()


def _ask(pool: RayPool, question: str) -> Request:
    prompt = tuple(pool.vocabulary.render([Message("user", question)]))
    return Request(id=uuid4().hex, tenant="t", prompt=prompt, sampling=GREEDY, max_tokens=60, min_tokens=60)


def _engine_of(replica: int) -> int:
    children = psutil.Process(replica).children(recursive=True)
    found: int = next(child.pid for child in children if "EngineCor" in child.name())
    return found


def _process(engine: VllmEngine) -> Any:
    return engine._llm.engine_core.resources.engine_manager.processes[0]
