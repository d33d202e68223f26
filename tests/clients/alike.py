"""Runs ask.py and ask.mjs, the same script in two languages, against gateway and device, and compares."""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.ask import ask

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "test-clients"
FILES = ("package.json", "package-lock.json", ".npmrc", "ask.mjs")


@functools.cache
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


async def told_alike(
    gateway: str, device: str, key: str, model: str, tokens: int, temperature: float = 0.7
) -> dict[str, Any]:
    """What OpenAI's clients, Python and Node, are told by gateway and device: the same, four times."""
    script = node_script()
    told = []
    for url, path in ((gateway, "gateway"), (device, "hybrid")):
        for asked in (
            await asyncio.to_thread(ask, f"{url}/v1", key, model, tokens, temperature),
            await by_node(script, f"{url}/v1", key, model, str(tokens), str(temperature)),
        ):
            paths = asked.pop("paths")
            assert paths == [path], paths
            told.append(asked)
    first = told[0]
    for other in told[1:]:
        assert other == first, f"{first}\n{other}"
    assert first["whole"] == first["streamed"] == first["helped"]
    assert first["call"]["name"] == "weather"
    return first
