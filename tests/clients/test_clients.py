"""OpenAI's own clients, Python and Node, run the same script against gateway and device and are told the same."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edge.drafters.load import load_drafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.models import default_directory, pair
from edge.script import Script, ScriptVocabulary
from tests.clients.ask import ask
from tests.e2e.endpoint import device_settings, endpoint
from tests.e2e.gateway import Gateway

HERE = Path(__file__).parent
MODELS = pair(default_directory())
CACHE = HERE.parents[1] / ".cache" / "test-clients"
FILES = ("package.json", "package-lock.json", ".npmrc", "ask.mjs")


@pytest.fixture(scope="session")
def node_script() -> Path:
    """The script with its packages, in the cache; installed again when the lock has changed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node and npm are not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    lock, installed = HERE / "package-lock.json", CACHE / "node_modules" / ".installed-lock"
    for name in FILES:
        shutil.copy(HERE / name, CACHE / name)
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        command = [npm, "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
        if done.returncode:
            pytest.skip(f"npm could not fetch the packages: {done.stderr[-300:]}")
        shutil.copy(lock, installed)
    return CACHE / "ask.mjs"


async def by_node(script: Path, *where: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        "node", str(script), *where, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 0, errors.decode()
    told: dict[str, Any] = json.loads(output)
    return told


async def told_alike(gateway: str, device: str, key: str, model: str, tokens: int, node_script: Path) -> dict[str, Any]:
    """What OpenAI's clients, Python and Node, are told by gateway and device: the same, four times."""
    told = []
    for url, path in ((gateway, "gateway"), (device, "hybrid")):
        for asked in (
            await asyncio.to_thread(ask, f"{url}/v1", key, model, tokens),
            await by_node(node_script, f"{url}/v1", key, model, str(tokens)),
        ):
            assert asked.pop("paths") == [path]
            told.append(asked)
    first = told[0]
    assert told == [first] * 4
    assert first["whole"] == first["streamed"] == first["helped"]
    assert first["call"]["name"] == "weather"
    return first


async def test_openais_clients_are_told_the_same_by_gateway_and_device(tmp_path: Path, node_script: Path) -> None:
    script = Script(ScriptVocabulary(), length=60)
    async with Gateway(tmp_path / "gateway", script, step_s=0.001) as gateway:
        settings = device_settings(tmp_path, gateway.url, gateway.key)
        async with endpoint(settings, ScriptedDrafter(script, right_with(0.7))) as device:
            told = await told_alike(gateway.url, device, gateway.key, "scripted", 400, node_script)
    assert len(told["whole"]) > 20


@pytest.mark.model
@pytest.mark.skipif(not MODELS.target.is_file(), reason="the embedded model is not in the model cache")
async def test_and_on_the_embedded_model_seeded_with_real_drafts(tmp_path: Path, node_script: Path) -> None:
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
                told = await told_alike(gateway.url, device, gateway.key, "smollm2", 64, node_script)
        finally:
            drafter.close()
    assert told["parsed"]["city"] in ("Ulm", "Bonn")
