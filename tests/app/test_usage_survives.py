"""What was used is counted, however the gateway's process ends. Real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from app.tenants.repository import Repository, open_database

FLUSH_S = 0.3


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PACELINE_USAGE_FLUSH_S": str(FLUSH_S),
        "PACELINE_SCRIPTED_STEP_MS": "10",
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "app", "serve", "--engine", "scripted", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder) as process:  # noqa: S603
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "Gateway on" in line)
            yield process, line.split()[2]
        finally:
            process.kill()


def stream(url: str, key: str, tokens: int) -> Iterator[int]:
    """How many tokens have come, as they come."""
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "logprobs": True,
        "max_tokens": tokens,
        "min_tokens": tokens,
    }
    headers = {"Authorization": f"Bearer {key}"}
    received = 0
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30) as answer:
        try:
            for line in answer.iter_lines():
                chunk = json.loads(line[6:]) if line.startswith("data: {") else {}
                for choice in chunk.get("choices", ()):
                    received += len((choice["logprobs"] or {}).get("content", ()))
                    yield received
        except httpx2.TransportError:
            return


async def counted(folder: Path) -> int:
    repository = Repository(open_database(f"sqlite+aiosqlite:///{folder}/paceline-data/paceline.db"))
    rows = await repository.usage()
    await repository.close()
    return sum(row.counts.completion for row in rows)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_nothing_is_lost_when_the_gateway_is_told_to_stop(tmp_path: Path, sent: signal.Signals) -> None:
    received, told = 0, False
    with gateway(tmp_path) as (process, url):
        key = (tmp_path / "paceline-data" / "initial-key").read_text().strip()
        for received in stream(url, key, 1000):
            if received >= 20 and not told:
                told = True
                process.send_signal(sent)
        process.wait(30)
    assert told
    assert received < 1000
    assert await counted(tmp_path) >= received


async def test_a_gateway_that_is_killed_loses_one_interval_at_most(tmp_path: Path) -> None:
    arrivals: list[tuple[float, int]] = []
    killed_at = 0.0
    with gateway(tmp_path) as (process, url):
        key = (tmp_path / "paceline-data" / "initial-key").read_text().strip()
        for received in stream(url, key, 1000):
            arrivals.append((time.monotonic(), received))
            if not killed_at and arrivals[-1][0] - arrivals[0][0] > 4 * FLUSH_S:
                killed_at = time.monotonic()
                process.kill()
        process.wait(30)
    # Two intervals: the write itself takes a while, most of all on a busy machine.
    due = max((received for at, received in arrivals if at < killed_at - 2 * FLUSH_S), default=0)
    assert due > 0
    assert await counted(tmp_path) >= due
