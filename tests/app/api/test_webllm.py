"""A model for WebLLM: its files go to who was told their address, and its vocabulary is compared with the target's."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from edge.models import default_directory
from tests.app.serving import serving

MODELS = default_directory()
TOKENIZER = MODELS / "SmolLM2-135M-Instruct-HF/tokenizer.json"
TARGET = MODELS / "SmolLM2-135M-Instruct-F16.gguf"


def compiled(folder: Path) -> Path:
    """What MLC's compiler leaves, with a real tokenizer and nothing behind the other names."""
    folder.mkdir()
    (folder / "mlc-chat-config.json").write_text(json.dumps({"vocab_size": 49152, "eos_token_id": 2}))
    (folder / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    (folder / "model.wasm").write_bytes(b"library")
    (folder / "params_shard_0.bin").write_bytes(b"weights")
    return folder


@pytest.mark.skipif(not TOKENIZER.is_file(), reason="the embedded models are not in the cache: make models")
async def test_its_files_need_the_address_that_only_a_key_tells(tmp_path: Path) -> None:
    folder = compiled(tmp_path / "draft-MLC")
    (tmp_path / "beside").write_text("not for anybody")
    async with serving(tmp_path / "data", webllm_dir=folder) as gateway, httpx2.AsyncClient() as client:
        assert (await client.get(f"{gateway.url}/v1/drafter/webllm")).status_code == 401
        about = (await client.get(f"{gateway.url}/v1/drafter/webllm", headers=gateway.headers)).json()
        assert about["id"] == "draft-MLC"
        assert about["bytes"] == sum(file.stat().st_size for file in folder.iterdir())
        weights = await client.get(f"{gateway.url}{about['url']}params_shard_0.bin")
        assert weights.content == b"weights"
        assert "immutable" in weights.headers["cache-control"]
        assert (await client.get(gateway.url + about["library"])).content == b"library"
        for wrong in (
            "/v1/drafter/webllm/guess/resolve/main/model.wasm",
            f"{about['url']}absent",
            f"{about['url']}..%2Fbeside",
        ):
            assert (await client.get(gateway.url + wrong)).status_code == 404


@pytest.mark.skipif(not TOKENIZER.is_file(), reason="the embedded models are not in the cache: make models")
async def test_its_fingerprint_is_the_targets(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp reads the target's vocabulary, and is not installed")
    from app.engine.llama_cpp import open_vocabulary

    folder = compiled(tmp_path / "draft-MLC")
    async with serving(tmp_path / "data", webllm_dir=folder) as gateway, httpx2.AsyncClient() as client:
        about = (await client.get(f"{gateway.url}/v1/drafter/webllm", headers=gateway.headers)).json()
    with open_vocabulary(TARGET) as target:
        assert about["fingerprint"] == target.fingerprint
        assert set(about["ends"]) == target.ends


async def test_a_gateway_without_one_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway, httpx2.AsyncClient() as client:
        answer = await client.get(f"{gateway.url}/v1/drafter/webllm", headers=gateway.headers)
        assert answer.status_code == 404
        assert "PACELINE_WEBLLM_DIR" in answer.json()["error"]["message"]
