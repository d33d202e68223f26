"""vLLM's engine process is killed: all that depends on it says so, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from app.engine.vllm_engine import VllmEngine
from edge.protocol.errors import EngineFailed
from tests.vllm.conftest import vllm_engine
from tests.vllm.questions import ask, read, until

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


def _process(engine: VllmEngine) -> Any:
    return engine._llm.engine_core.resources.engine_manager.processes[0]
