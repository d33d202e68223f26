"""One vLLM for all tests here: it takes half a minute to start."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.engine.vllm_engine import VllmEngine
from bench.hf_model import folder

MODEL = folder()
_MISSING = (
    "vLLM isn't installed here: make test-vllm"
    if find_spec("vllm") is None
    else ""
    if (MODEL / "config.json").is_file()
    else f"no {MODEL}: python -m bench.hf_model"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("vllm"):
            # Warnings are errors in our code; vLLM and torch have some of their own.
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.skipif(bool(_MISSING), reason=_MISSING))


os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB: several engines are up at a time


def vllm_engine(*, streams: int = 8, **options: Any) -> VllmEngine:
    return VllmEngine(str(MODEL), model_id="smollm2", context=256, streams=streams, **options)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[VllmEngine]:
    engine = vllm_engine()
    await engine.start()
    yield engine
    await engine.stop()
