"""The draft model that a browser fetches, over HTTP on the real server."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from edge.models import default_directory
from tests.app.serving import scripted, serving

DRAFT = default_directory() / "SmolLM2-135M-Instruct-Q4_1.gguf"


async def test_it_comes_whole_or_by_ranges_and_may_be_kept_for_good(tmp_path: Path) -> None:
    if not DRAFT.is_file():
        pytest.skip("the embedded model is not in the cache: make models")
    async with serving(tmp_path, draft_model=str(DRAFT)) as gateway, httpx2.AsyncClient() as client:
        about = (await client.get(f"{gateway.url}/v1/drafter", headers=gateway.headers)).json()
        assert about["bytes"] == DRAFT.stat().st_size
        assert len(about["fingerprint"]) == 64
        part = await client.get(gateway.url + about["url"], headers={**gateway.headers, "Range": "bytes=4-11"})
        assert part.status_code == 206
        assert part.content == DRAFT.read_bytes()[4:12]
        assert part.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert part.headers["etag"]
        assert part.headers["cross-origin-embedder-policy"] == "require-corp"


async def test_a_gateway_without_one_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, draft_model="absent.gguf") as gateway, httpx2.AsyncClient() as client:
        for address in ("/v1/drafter", "/v1/drafter/model"):
            answer = await client.get(gateway.url + address, headers=gateway.headers)
            assert answer.status_code == 404
            assert "PACELINE_DRAFT_MODEL" in answer.json()["error"]["message"]


async def test_it_needs_a_key(tmp_path: Path) -> None:
    async with serving(tmp_path, scripted(4)) as gateway, httpx2.AsyncClient() as client:
        for address in ("/v1/drafter", "/v1/drafter/model"):
            assert (await client.get(gateway.url + address)).status_code == 401
