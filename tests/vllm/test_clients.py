"""OpenAI's clients, Python and Node, are told the same by a gateway on vLLM and by a device that drafts for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.engine.vllm_engine import VllmEngine
from edge.drafters.ngram import NgramDrafter
from tests.clients.alike import told_alike
from tests.e2e.endpoint import device_settings, endpoint
from tests.e2e.gateway import Gateway
from tests.vllm.borrowed import Borrowed

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]


async def test_greedy_answers_are_the_same_four_times(engine: VllmEngine, tmp_path: Path) -> None:
    borrowed: Any = Borrowed(engine)
    async with Gateway(tmp_path / "gateway", borrowed) as gateway:
        settings = device_settings(tmp_path, gateway.url, gateway.key)
        drafter = NgramDrafter()
        drafter.vocabulary = engine.vocabulary  # else the device can't read prompts, and leaves all to the gateway
        async with endpoint(settings, drafter) as device:
            told = await told_alike(gateway.url, device, gateway.key, "smollm2", 48, temperature=0.0)
    assert told["parsed"]["city"] in ("Ulm", "Bonn")
