"""OpenAI's own clients, Python and Node, run the same script and are told the same."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.app.serving import MODEL, scripted, serving
from tests.clients.ask import ask

HERE = Path(__file__).parent
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


async def test_openais_clients_are_told_the_same(tmp_path: Path, node_script: Path) -> None:
    async with serving(tmp_path, scripted(length=60)) as running:
        where = (f"{running.url}/v1", running.key, MODEL)
        python = await asyncio.to_thread(ask, *where)
        process = await asyncio.create_subprocess_exec(
            "node", str(node_script), *where, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert json.loads(output) == python
    assert python["whole"] == python["streamed"] == python["helped"]
    assert python["call"]["name"] == "weather"
