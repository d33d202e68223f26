"""OpenAI's own clients, Python and Node, run the same script against gateway and device and are told the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.drafters.load import load_drafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.models import default_directory, pair
from edge.script import Script, ScriptVocabulary
from tests.clients.alike import told_alike
from tests.e2e.endpoint import device_settings, endpoint
from tests.e2e.gateway import Gateway

MODELS = pair(default_directory())


async def test_openais_clients_are_told_the_same_by_gateway_and_device(tmp_path: Path) -> None:
    script = Script(ScriptVocabulary(), length=60)
    async with Gateway(tmp_path / "gateway", script, step_s=0.001) as gateway:
        settings = device_settings(tmp_path, gateway.url, gateway.key)
        async with endpoint(settings, ScriptedDrafter(script, right_with(0.7))) as device:
            told = await told_alike(gateway.url, device, gateway.key, "scripted", 400)
    assert len(told["whole"]) > 20


@pytest.mark.model
@pytest.mark.skipif(not MODELS.target.is_file(), reason="the embedded model is not in the model cache")
async def test_and_on_the_embedded_model_seeded_with_real_drafts(tmp_path: Path) -> None:
    """`steady`: then logits don't depend on what else is in a step, and equal means equal."""
    pytest.importorskip("llama_cpp")
    from app.engine.llama_cpp import LlamaCppEngine

    engine = LlamaCppEngine(MODELS.target, model_id="smollm2", context=512, steady=True)
    async with Gateway(tmp_path / "gateway", engine) as gateway:
        settings = device_settings(tmp_path, gateway.url, gateway.key, draft_context=512)
        drafter = await asyncio.to_thread(load_drafter, settings)
        assert drafter is not None
        try:
            async with endpoint(settings, drafter) as device:
                told = await told_alike(gateway.url, device, gateway.key, "smollm2", 64)
        finally:
            drafter.close()
    assert told["parsed"]["city"] in ("Ulm", "Bonn")
