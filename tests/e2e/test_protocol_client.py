"""The smallest client of docs/protocol.md, as it stands there, against a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.serving import MODEL, scripted, serving

PAGE = Path(__file__).parents[2] / "docs/protocol.md"
CLIENT = PAGE.read_text().split("```python\n")[1].split("```")[0]


@pytest.fixture
def client() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "client"}
    exec(compile(CLIENT, str(PAGE), "exec"), names)  # noqa: S102 (our own page)
    return names


async def test_it_shows_the_targets_text(client: dict[str, Any], tmp_path: Path) -> None:
    shown: list[str] = []
    client["print"] = lambda text, **_: shown.append(text)
    texts = []
    async with serving(tmp_path, scripted(40)) as gateway:
        url = gateway.url.replace("http", "ws") + "/v1/verify"
        for _ in range(2):
            assert await client["ask"](url, gateway.key, MODEL, "Why?") == "stop"
            texts.append("".join(shown))
            shown.clear()
    assert len(texts[0]) > 10
    assert texts[0] == texts[1]  # greedy


async def test_it_raises_what_the_gateway_says(client: dict[str, Any], tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway:
        url = gateway.url.replace("http", "ws") + "/v1/verify"
        with pytest.raises(RuntimeError, match="unknown_model"):
            await client["ask"](url, gateway.key, "another", "Why?")
        with pytest.raises(RuntimeError, match="invalid_api_key"):
            await client["ask"](url, "sk-wrong", MODEL, "Why?")
